"""Checks comments, documents, help texts and errors for phrases that need a second reading."""
import ast
import io
import re
import tokenize
from pathlib import Path

from cpp_source import Prose
from findings import Finding

LIST = Path(__file__).with_name("phrases.txt")
# They quote the phrases.
EXEMPT = ("tools/lint/phrases.txt", "tests/lint/")
# A line of a comment that begins so lacks its subject.
BEGINNING = (re.compile(r"^[ \t]*(?:Of|What)\b", re.MULTILINE), "begin with the subject: \"The bytes that ...\"")
OTHER_TEXT = (".sh", ".toml", ".capnp", ".md", "meson.build", "meson_options.txt")


def check_phrases(project):
    """No phrase of tools/lint/phrases.txt in texts for people, and no comment that begins with Of or What."""
    phrases = read_phrases(LIST.read_text(encoding="utf-8"))
    findings = []
    for path in project.files:
        if path.startswith(EXEMPT):
            continue
        comments, others = read_prose(project, path)
        for prose in comments:
            findings += find_phrases([BEGINNING, *phrases], path, prose)
        for prose in others:
            findings += find_phrases(phrases, path, prose)
    return findings


def read_phrases(text):
    """[(pattern, advice)]: one `PHRASE | what to say instead` per line. A phrase is a regular
    expression for whole words; a space matches any white space."""
    phrases = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        phrase, advice = (part.strip() for part in line.split(" | ", 1))
        pattern = re.compile(rf"\b(?:{phrase})\b".replace(" ", r"\s+"), re.IGNORECASE)
        phrases.append((pattern, advice))
    return phrases


def find_phrases(phrases, path, prose):
    findings = []
    for pattern, advice in phrases:
        for found in pattern.finditer(prose.text):
            line = prose.line + prose.text.count("\n", 0, found.start())
            words = " ".join(found.group().split())
            findings.append(Finding("phrases", path, line, f"do not write \"{words}\": {advice}"))
    return findings


def read_prose(project, path):
    """Returns a file's comments and docstrings, and its other texts that people read."""
    if path in project.cpp_files:
        source = project.cpp(path)
        return source.comments, source.strings
    if path.endswith(".py"):
        return read_python(project.text(path))
    if path.endswith(OTHER_TEXT):
        text = [Prose(1, re.sub(r"^([ \t]*)#+", r"\1", project.text(path), flags=re.MULTILINE))]
        return ([], text) if path.endswith(".md") else (text, [])
    return [], []


def read_python(text):
    comments, others = [], []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                words = token.string.lstrip("#")
                if comments and comments[-1].line + comments[-1].text.count("\n") + 1 == token.start[0]:
                    comments[-1] = Prose(comments[-1].line, comments[-1].text + "\n" + words)
                else:
                    comments.append(Prose(token.start[0], words))
            elif token.type == tokenize.STRING:
                texts = comments if token.string.endswith('"""') else others
                texts.append(Prose(token.start[0], string_value(token.string)))
    except (tokenize.TokenError, SyntaxError):
        pass  # flake8 reports it
    return comments, others


def string_value(literal):
    try:
        return str(ast.literal_eval(literal))
    except (SyntaxError, ValueError):
        return literal  # an f-string
