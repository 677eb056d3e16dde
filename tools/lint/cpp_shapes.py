"""Finds the classes and functions of a C++ file, and the members of each class.

It is no compiler: it follows the braces, and reads the tokens in front of each. That is enough for
code that clang-format has formatted, and needs no build folder.
"""
import re
from dataclasses import dataclass, field

TOKEN = re.compile(r'[A-Za-z_]\w*|::|->|<<=|>>=|<=>|[=!<>+\-*/%&|^]=|&&|\|\||\S')
OPENING, CLOSING = "([{", ")]}"
CLASS_KEYS = {"class", "struct", "union"}
BEFORE_BODY = {"const", "noexcept", "override", "final", "mutable", "try", "&", "&&", ")", "}", "]"}
NOT_FUNCTIONS = {"if", "for", "while", "switch", "catch", "return", "static_assert", "alignas", "decltype"}
NOT_MEMBERS = {"using", "typedef", "friend", "static_assert", "public", "private", "protected"}


@dataclass
class Function:
    name: str
    line: int
    last_line: int

    @property
    def line_count(self):
        return self.last_line - self.line + 1


@dataclass
class Class:
    """Methods include constructors and operators, but nothing defaulted or deleted."""
    name: str
    key: str  # class, struct or union
    line: int
    last_line: int
    methods: list = field(default_factory=list)
    members: list = field(default_factory=list)  # data, constants too
    member_types: list = field(default_factory=list)  # the tokens in front of each name
    has_private: bool = False


@dataclass(frozen=True)
class Token:
    text: str
    line: int


class Shapes:
    """The `classes` and `functions` of one file. `balanced` is false if its braces do not match."""

    def __init__(self, source):
        self.classes = []
        self.functions = []
        self._tokens = tokenize(source.code)
        self.balanced = self._find_pairs()
        if self.balanced:
            self._read_scope(0, len(self._tokens), None, "")

    def _find_pairs(self):
        """Finds the index of the closing bracket for each opening one."""
        self._closing = {}
        open_indices = []
        for index, token in enumerate(self._tokens):
            if token.text in OPENING:
                open_indices.append(index)
            elif token.text in CLOSING:
                if not open_indices:
                    return False
                opening = open_indices.pop()
                if OPENING.index(self._tokens[opening].text) != CLOSING.index(token.text):
                    return False
                self._closing[opening] = index
        return not open_indices

    def _read_scope(self, index, end, owner, outer):
        """Reads the declarations of a namespace (`owner` is None) or of the class `owner`."""
        while index < end:
            index = self._read_declaration(index, end, owner, outer)

    def _read_declaration(self, begin, end, owner, outer):
        """Returns the index after the declaration that starts at `begin`."""
        head = []  # the tokens outside all brackets; a pair of brackets is its opening one
        index = begin
        while index < end:
            token = self._tokens[index]
            if token.text == ";":
                if owner is not None:
                    add_members(owner, head)
                return index + 1
            if token.text == ":" and len(head) == 1 and head[0].text in ("public", "private", "protected"):
                if owner is not None and head[0].text != "public":
                    owner.has_private = True
                return index + 1
            if token.text == "{":
                kind, name = classify(head)
                closing = self._closing[index]
                if kind == "namespace":
                    self._read_scope(index + 1, closing, None, outer)
                    return closing + 1
                if kind == "class":
                    self._read_class(head, name, index, closing, outer)
                    index = closing + 1
                    # `struct A {...} a;`: the next tokens declare a member.
                    head = [Token("struct", token.line), Token(name, token.line)]
                    if self._text(index) == ";":
                        return index + 1
                    continue
                if kind == "function":
                    self.functions.append(Function(outer + name, head[0].line, self._tokens[closing].line))
                    self._read_local_classes(index + 1, closing, outer + name + "::")
                    if owner is not None:
                        add_members(owner, head)
                    return closing + 1
            if self._is_function_pointer(index):
                head.append(self._tokens[index + 2])
                index = self._closing[self._closing[index] + 1] + 1
                continue
            head.append(token)
            index = self._closing[index] + 1 if token.text in OPENING else index + 1
        return end

    def _is_function_pointer(self, index):
        """`(*name)(arguments)`"""
        if self._text(index) != "(" or self._text(index + 1) != "*":
            return False
        return self._closing[index] == index + 3 and self._text(index + 4) == "("

    def _read_class(self, head, name, opening, closing, outer):
        found = Class(outer + name, class_key(head), head[0].line, self._tokens[self._closing[opening]].line)
        self.classes.append(found)
        self._read_scope(opening + 1, closing, found, outer + name + "::")

    def _read_local_classes(self, begin, end, outer):
        for index in range(begin, end):
            starts = self._tokens[index - 1].text in ("{", "}", ";")
            if starts and self._text(index) in CLASS_KEYS and self._text(index + 1) != "{":
                self._read_declaration(index, end, None, outer)

    def _text(self, index):
        return self._tokens[index].text if index < len(self._tokens) else ""


def tokenize(code):
    tokens = []
    for number, line in enumerate(code.split("\n"), 1):
        tokens += [Token(text, number) for text in TOKEN.findall(line)]
    return tokens


def classify(head):
    """Returns what a brace after `head` opens: (namespace | class | function | other, name)."""
    texts = [token.text for token in without_angles(head)]
    if not texts:
        return "namespace", ""  # a stray block
    if "namespace" in texts or texts[:2] == ["extern", '"']:
        return "namespace", ""
    if "enum" in texts:
        return "other", ""
    if class_key(head) and "(" not in texts and "=" not in texts:
        return "class", class_name(texts)
    if "(" not in texts or "=" in texts[:texts.index("(")] and "operator" not in texts:
        return "other", ""
    name = function_name(texts)
    if name in NOT_FUNCTIONS or not name:
        return "other", ""
    after = texts[texts.index("(") + 1:]
    if ":" in after and after[-1] not in ("(", "{", ")"):
        return "other", ""  # `Type(int a) : a_{`: the brace of a member's value
    return "function", name


def class_key(head):
    return next((token.text for token in without_angles(head) if token.text in CLASS_KEYS), "")


def class_name(texts):
    names = texts[texts.index(next(text for text in texts if text in CLASS_KEYS)) + 1:]
    if ":" in names:
        names = names[:names.index(":")]
    names = [name for name in names if name not in ("final", "(", "[")]
    words = []
    for name in names:  # `Outer::Inner`, but not the macro in front of it
        if name == "::" or words[-1:] == ["::"]:
            words.append(name)
        else:
            words = [name]
    return "".join(words) or "(unnamed)"


def function_name(texts):
    if "operator" in texts:
        at = texts.index("operator")
        return "operator" + "".join(texts[at + 1:at + 3]).rstrip("(")
    end = texts.index("(")
    begin = end
    while begin > 0 and (texts[begin - 1] in ("::", "~") or re.match(r"\w", texts[begin - 1])):
        if begin < end and re.match(r"\w", texts[begin]) and re.match(r"\w", texts[begin - 1]):
            break
        begin -= 1
    return "".join(texts[begin:end])


def without_angles(head):
    """Returns `head` without template arguments. A `<` after `operator` is a name."""
    depth = 0
    kept = []
    for index, token in enumerate(head):
        previous = head[index - 1].text if index else ""
        if token.text == "<" and previous != "operator" and (depth or re.match(r"\w", previous)):
            depth += 1
        elif token.text == ">" and depth:
            depth -= 1
        elif not depth:
            kept.append(token)
    return kept


def add_members(owner, head):
    """Adds what one declaration in the body of `owner` declares."""
    tokens = without_angles(head)
    if tokens and tokens[0].text == "template":
        tokens = tokens[1:]
    if "enum" in [token.text for token in tokens[:1]]:  # `enum Kind {...} kind;`
        tokens = [token for index, token in enumerate(tokens) if index and tokens[index - 1].text == "{"]
    texts = [token.text for token in tokens]
    if not texts or texts[0] in NOT_MEMBERS:
        return
    if "operator" in texts or "(" in texts and "=" not in texts[:texts.index("(")]:
        if texts[-2:] not in (["=", "default"], ["=", "delete"]):
            owner.methods.append(function_name(texts))
        return
    if texts[0] in CLASS_KEYS and len(texts) == 2:
        return  # a declared class
    add_data(owner, tokens)


def add_data(owner, tokens):
    names = []
    types = []
    in_value = False
    for index, token in enumerate(tokens):
        following = tokens[index + 1].text if index + 1 < len(tokens) else ","
        if token.text == ",":
            in_value = False
        elif in_value:
            continue
        elif token.text in ("=", "{", ":"):
            in_value = True
        elif following in (",", "=", "{", "[", ":") and re.match(r"\w", token.text):
            names.append(token.text)
        elif not names:
            types.append(token.text)
    owner.members += names
    owner.member_types += [types] * len(names)
