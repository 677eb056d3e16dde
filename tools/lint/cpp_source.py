"""Splits a C++ file into code, comments and string literals."""
import re
from bisect import bisect_right
from dataclasses import dataclass

TOKEN = re.compile(
    r"""(?P<line_comment>//(?:[^\n\\]|\\.|\\\n)*)
      | (?P<comment>/\*.*?\*/)
      | (?P<raw>(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<number>\d(?:[\w.]|'\w|[eEpP][+-])*)
      | (?P<char>'(?:[^'\\\n]|\\.)+')
      | (?P<word>[A-Za-z_]\w*)
    """, re.VERBOSE | re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE | re.DOTALL)
NOT_NEWLINE = re.compile(r"[^\n]")


@dataclass(frozen=True)
class Prose:
    """Text for people. `line` is the line of its first character; newlines are kept."""
    line: int
    text: str


class CppSource:
    """`code` has the layout of the file, with comments and directives blanked and literals emptied."""

    def __init__(self, text):
        self.text = text
        self.line_count = text.count("\n") + (not text.endswith("\n") and text != "")
        self._line_starts = [0] + [found.end() for found in re.finditer("\n", text)]
        code = []
        comments = []  # (start, end) in text
        strings = []
        position = 0
        for token in TOKEN.finditer(text):
            kind = token.lastgroup if token.lastgroup != "mark" else "raw"
            if kind in ("word", "number"):
                continue
            start, end = token.span()
            code.append(text[position:start])
            position = end
            if kind in ("line_comment", "comment"):
                comments.append((start, end))
                code.append(blank(text[start:end]))
            else:
                if kind != "char":
                    strings.append((start, end))
                code.append('"' + blank(text[start + 1:end - 1]) + '"')
        code.append(text[position:])
        self.code = DIRECTIVE.sub(lambda found: blank(found.group()), "".join(code))
        self.comments = self._join(comments, comment_text)
        included = self._included_spans()
        self.strings = self._join([span for span in strings if span not in included], string_text)
        self.comment_line_count, self.code_line_count = self._count_lines(comments)

    def line_at(self, position):
        return bisect_right(self._line_starts, position)

    def includes(self):
        """Returns (line, path) of each #include "path"."""
        found = re.finditer(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', self.text, re.MULTILINE)
        return [(self.line_at(match.start()), match.group(1)) for match in found]

    def _included_spans(self):
        found = re.finditer(r'^[ \t]*#[ \t]*include[ \t]*("[^"\n]+")', self.text, re.MULTILINE)
        return {match.span(1) for match in found}

    def _join(self, spans, plain):
        """Joins neighbours with only white space between them into one text."""
        joined = []
        previous_end = None
        for start, end in spans:
            words = plain(self.text[start:end])
            gap = self.text[previous_end:start] if previous_end is not None else "x"
            if gap.strip() == "" and gap.count("\n") <= 1:
                joined[-1] = Prose(joined[-1].line, joined[-1].text + gap + words)
            else:
                joined.append(Prose(self.line_at(start), words))
            previous_end = end
        return joined

    def _count_lines(self, comments):
        """Counts (lines with only a comment, lines with code)."""
        has_comment = set()
        uncommented = []
        position = 0
        for start, end in comments:
            has_comment.update(range(self.line_at(start), self.line_at(end - 1) + 1))
            uncommented += [self.text[position:start], blank(self.text[start:end])]
            position = end
        uncommented.append(self.text[position:])
        lines = "".join(uncommented).split("\n")
        has_code = {number for number, line in enumerate(lines, 1) if line.strip()}
        return len(has_comment - has_code), len(has_code)


def blank(text):
    return NOT_NEWLINE.sub(" ", text)


def comment_text(text):
    """Returns the words of a comment, in the layout of the original."""
    return re.sub(r"^([ \t]*)(//+|/\*+|\*+/|\*(?= ))", r"\1", text, flags=re.MULTILINE).removesuffix("*/")


def string_text(text):
    """Returns the words of a literal. Escapes are blanked, so that the layout stays."""
    if re.match(r'(?:u8|[uUL])?R"', text):
        return text[text.index("(") + 1:text.rindex(")")]
    return re.sub(r"\\.", "  ", text[1:-1])
