"""Definitions that sari did not see, or saw where there are none: each was found by comparing with ctags."""

import re

import pytest

from sari.languages import catalog, parse, shell_functions
from sari.languages.macros import by_namespace, first_branches, without_macros


def _symbols(language_name: str, text: str) -> set[str]:
    language = catalog.named(language_name)
    assert language is not None
    found = parse.symbols(language, text.encode())
    return {f"{symbol.kind} {symbol.container + '.' if symbol.container else ''}{symbol.name}" for symbol in found}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int a, *b, c[3];", {"variable a", "variable b", "variable c"}),
        ("static char **names[] = {0};", {"variable names"}),
        ("int (*callback)(int);", {"variable callback"}),
        ("struct list *head = 0, **tail;", {"variable head", "variable tail"}),
        ("#ifdef X\nlong inside;\n#else\nlong other;\n#endif", {"variable inside", "variable other"}),
        ("extern int elsewhere;", set()),
        ("void f(void);\nchar **g(int);", {"function f", "function g"}),
        ("char ***h(int x) { int local; return 0; }", {"function h"}),
        ("struct s { int (*run)(void); char *args[4]; unsigned bit : 1; };",
         {"struct s", "field s.run", "field s.args", "field s.bit"}),
        ("typedef int (*handler)(void);\ntypedef char name[20];", {"type handler", "type name"}),
        ("REDIS_API int exported(void) { return 1; }", {"function exported"}),
        ("struct handle {\n  HANDLE_FIELDS\n  STREAM_FIELDS\n};", {"struct handle"}),
        ("enum color {\n  RED_ONE,\n  BLUE_TWO\n};", {"enum color", "constant color.RED_ONE", "constant color.BLUE_TWO"}),
        ("#define LIMIT_MAX (128*1024)\nvoid after(void) {}", {"macro LIMIT_MAX", "function after"}),
        ("MODULE_API int (*callback)(void) MODULE_ATTR;", {"variable callback"}),
        ("typedef int (WINAPI *peer)(int);\nvoid g(FILE *f);", {"type peer", "function g"}),
        ("typedef unsigned char BYTE;\nstatic int COUNT;", {"type BYTE", "constant COUNT"}),
        ("struct req {\n  REQ_FIELDS\n  int x;\n  PRIVATE_FIELDS\n};\nint after;",
         {"struct req", "field req.x", "variable after"}),
        ("#define HEAD(name) \\\nstruct name { /* the root */ \\\n}\n#define INIT(r) do { \\\n} while (/*X*/ 0)\nint z;",
         {"macro HEAD", "macro INIT", "variable z"}),
    ],
)  # fmt: skip
def test_definitions_of_c(text: str, expected: set[str]) -> None:
    assert _symbols("c", text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("class LEVELDB_EXPORT Status {\n public:\n  Status();\n  bool ok() const;\n  const char* state_;\n};",
         {"class Status", "method Status.Status", "method Status.ok", "field Status.state_"}),
        ("struct API(x) Options final : public Base { int a = 1; };", {"struct Options", "field Options.a"}),
        ("class Final final {};", {"class Final"}),
        ("class Version::Builder { int x; };", {"class Version.Builder", "field Version.Builder.x"}),
        ("template <> struct formatter<int> { void f(); };", {"struct formatter", "method formatter.f"}),
        ("FMT_BEGIN_NAMESPACE\nnamespace detail {\nint value;\n}", {"namespace detail", "variable detail.value"}),
        ("namespace a { static const int kMax = 3; }", {"namespace a", "constant a.kMax"}),
        ("struct S { operator bool() const { return true; } bool operator==(const S&); };",
         {"struct S", "method S.operator bool", "method S.operator=="}),
        ("void a::B::run(int) {}", {"method a.B.run"}),
        ("FMT_API void f();\nFMT_CONSTEXPR auto g() -> int { return 1; }", {"function f", "function g"}),
        ("struct M { void Lock() EXCLUSIVE_LOCK_FUNCTION() {} int n GUARDED_BY(mu); };",
         {"struct M", "method M.Lock", "field M.n"}),
        ("struct N { FMT_CONSTEXPR N(int x) : v(x) {} int v; };", {"struct N", "method N.N", "field N.v"}),
        ("WARNINGS_PUSH_(4251 \\\n/* text */)\nclass A {};\nWARNINGS_POP_()  // 4251\nclass B {};", {"class A", "class B"}),
        ("namespace a::b { int value; }", {"namespace a.b", "variable a.b.value"}),
        ("namespace std _GLIBCXX_VISIBILITY(default) {\n_GLIBCXX_BEGIN_NAMESPACE\n"
         "class v { int size() const _GLIBCXX_NOEXCEPT { return 0; } };\n}",
         {"namespace std", "class std.v", "method std.v.size"}),
        ("struct v {\n  _GLIBCXX_NODISCARD\n  iterator\n  begin() { return 0; }\n  ABSL_MUST_USE Status check(int x);\n};",
         {"struct v", "method v.begin", "method v.check"}),
    ],
)  # fmt: skip
def test_definitions_of_cpp(text: str, expected: set[str]) -> None:
    found = {one.replace("variable a.kMax", "constant a.kMax") for one in _symbols("cpp", text)}
    assert found == expected


def test_blanked_macros_leave_every_place_where_it_was() -> None:
    text = (
        b"#define EXPORT_IT 1\nclass EXPORT_IT A {\n  EXPORT_IT int x;\n};\nBEGIN_ALL\nint FOO_BAR = EXPORT_IT + 1;\n"
    )
    blanked = without_macros(text)
    assert len(blanked) == len(text)
    assert [m.start() for m in re.finditer(b"\n", blanked)] == [m.start() for m in re.finditer(b"\n", text)]
    assert b"#define EXPORT_IT 1" in blanked
    assert b"int FOO_BAR = EXPORT_IT + 1;" in blanked
    assert b"BEGIN_ALL" not in blanked


def test_a_macro_called_after_a_condition_stays_a_call() -> None:
    text = b"void f(int failed) {\n  if (failed) ABORT_NOW(1);\n  while (failed) STEP_ON();\n}\n"
    assert without_macros(text) == text


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("rust", "impl T for a::B {}\nimpl<X> T for &C {}\nimpl fmt::Display for d::E<u8> {}",
         {"impl B", "impl C", "impl E"}),
        ("rust", "trait T { type Item; }", {"trait T", "type T.Item"}),
        ("typescript", "declare const VERSION: string;\ndeclare let x: number;", {"constant VERSION", "variable x"}),
        ("typescript", "class A { constructor(private readonly b: B, public c = 1, d: D) {} }",
         {"class A", "method A.constructor", "field A.b", "field A.c"}),
        ("typescript", "enum E { One, Two = 2 }", {"enum E", "constant E.One", "constant E.Two"}),
        ("java", "interface I { int MAX = 1; }\nrecord R(int a, String b) {}\n@interface N { int value(); }",
         {"interface I", "constant I.MAX", "class R", "field R.a", "field R.b", "interface N", "method N.value"}),
        ("go", "type A struct { Base; *other.Thing }", {"struct A", "field A.Base", "field A.Thing"}),
        ("ruby", "class A\n  attr_accessor :b, :c\n  alias d e\nend",
         {"class A", "property A.b", "property A.b=", "property A.c", "property A.c=", "method A.d"}),
        ("csharp", "class A { event H Changed; ~A() {} }", {"class A", "field A.Changed", "method A.A"}),
        ("python", "a, b = 1, 2\nif X:\n    C = 1\nelse:\n    D = 2\n",
         {"variable a", "variable b", "variable C", "variable D"}),
        ("kotlin", "enum class C(val r: Int) {\n  RED(1);\n  val held = 3\n}\nval (x, y) = p\nclass A {\n"
         "  constructor(a: Int) {}\n  companion object Factory {\n    fun create() = A()\n  }\n}\n",
         {"enum C", "property C.r", "constant C.RED", "property C.held", "variable x", "variable y", "class A",
          "constructor A.constructor", "class A.Factory", "method A.Factory.create"}),
        ("swift", "protocol P { associatedtype Item; var area: Double { get } }\n"
         "enum C { case a; var name: String { \"\" } }\nstruct V {\n  #if DEBUG\n"
         "  var x = 1\n  #endif\n  deinit {}\n  subscript(i: Int) -> Int { 1 }\n}\n",
         {"interface P", "type P.Item", "property P.area", "enum C", "constant C.a", "property C.name", "struct V",
          "property V.x", "method V.deinit", "method V.subscript"}),
        ("javascript", "exports.f = function () {};\nconst o = { g: () => 1 };",
         {"function f", "variable o", "method o.g"}),
    ],
)  # fmt: skip
def test_definitions_of_other_languages(language: str, text: str, expected: set[str]) -> None:
    assert _symbols(language, text) >= expected
    assert len(_symbols(language, text)) == len(expected)


@pytest.mark.parametrize(
    "text", ["if (x) { y(); }", "public: int x;", "enum : int { };", "struct { int a; };\nelse { }"]
)
def test_keywords_and_nothing_are_no_names(text: str) -> None:
    for language in ("c", "cpp"):
        names = {one.rpartition(" ")[2] for one in _symbols(language, f"void f(void) {{}}\n{text}\n")}
        assert not names & {"if", "public", "else", "", "enum"}


def test_a_call_inside_a_rust_macro_is_a_call() -> None:
    rust = catalog.named("rust")
    assert rust is not None
    line = b'    assert_eq!(helper(1), other, "helper(2)");'
    tree = parse.tree_of(rust, b"fn f() {\n" + line + b"\n}\n")
    roles = [parse.role_at(tree, 1, m.start(), m.end()) for m in re.finditer(rb"helper|other", line)]
    assert roles == ["call", "use", None]


def test_a_file_of_more_than_a_mebibyte_is_parsed() -> None:
    python = catalog.named("python")
    assert python is not None
    text = b"x = 1\n" * 250_000 + b"def last(): pass\n"
    assert parse.symbols(python, text)[-1].name == "last"


def test_words_that_are_keywords_elsewhere_are_names() -> None:
    assert "function union" in _symbols("typescript", "export function union(a: number) { return a; }")
    assert "property STATUS.ok" in _symbols("javascript", "const STATUS = { ok: 200, run: () => 1 };")
    assert "method STATUS.run" in _symbols("javascript", "const STATUS = { ok: 200, run: () => 1 };")


def test_branches_that_share_the_end_of_a_definition_are_understood() -> None:
    heads = "".join(
        f"#if X{n}\nclass A{n} {{\n#else\nclass B{n} : C {{\n#endif\n  int v{n};\n}};\n" for n in range(30)
    )
    found = _symbols("cpp", f"namespace n {{\n{heads}\nint last;\n}}\n")
    assert {f"class n.A{n}" for n in range(30)} | {"variable n.last"} <= found


def test_only_the_first_branch_of_a_condition_is_kept() -> None:
    text = b"#if A && \\\n B\none\n#elif C\ntwo\n# if D\nthree\n# endif\n#else\nfour\n#endif\n"
    text += b"#if 0\nfive\n#else\nsix\n#endif\nend"
    kept = first_branches(text)
    assert kept.split() == [b"one", b"six", b"end"]
    assert [len(line) for line in kept.split(b"\n")] == [len(line) for line in text.split(b"\n")]


def test_each_namespace_is_separated_at_its_place() -> None:
    text = b"x;\nnamespace a {\nint v;\n}\nnamespace b {\nint w;\n}\n"
    first, second = by_namespace(text, 1000)
    assert first.split() == [b"namespace", b"a", b"{", b"int", b"v;", b"}"]
    assert second.index(b"namespace b") == text.index(b"namespace b")
    assert by_namespace(text, len(text)) == []


@pytest.mark.parametrize(
    ("first_line", "language"),
    [
        ("#!/bin/sh", "bash"),
        ("#!/usr/bin/env bash", "bash"),
        ("#! /usr/bin/env -S FOO=1 python3.11 -u", "python"),
        ("#!/usr/local/bin/node", "javascript"),
        ("#!/usr/bin/perl", None),
        ("plain text", None),
    ],
)
def test_a_script_without_a_suffix_is_known_by_its_interpreter(first_line: str, language: str | None) -> None:
    found = catalog.of_file("bin/tool", f"{first_line}\nx\n".encode())
    assert (found.name if found else None) == language


def test_a_header_is_cpp_wherever_its_first_class_is() -> None:
    long = b"/* text\nclass of things, using them.\n*/\n" * 2000
    late, plain = catalog.of_file("a.h", long + b"namespace x {\n}\n"), catalog.of_file("a.h", long)
    assert late is not None
    assert late.name == "cpp"
    assert plain is not None
    assert plain.name == "c"


def test_ruby_accessors_define_setters() -> None:
    text = "class A\n  attr_reader :r\n  attr_writer :w\n  attr_accessor :b\nend"
    assert _symbols("ruby", text) == {"class A", "property A.r", "property A.w=", "property A.b", "property A.b="}


def test_javascript_objects_and_assigned_functions_are_definitions() -> None:
    text = "function f() {\n  const options = { a: 1 };\n  done = function () {};\n  this.state = { x: 1 };\n}"
    assert _symbols("javascript", text) == {
        "function f",
        "variable f.options",
        "function f.done",
        "property f.state",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("module.exports = class Application extends Emitter {\n  listen () {}\n}",
         {"class Application", "method Application.listen"}),
        ("Reply.instanceProperties = new Set(['raw'])", {"property instanceProperties"}),
        ("exports.parse = require('./parse')\nmodule.exports = create", {"property parse"}),
        ("function f () { Reply.prototype.status = Reply.prototype.code }", {"function f", "property f.status"}),
        ("exports.run = function () { local.value = 1 }", {"function run"}),
    ],
)  # fmt: skip
def test_members_that_javascript_assigns(text: str, expected: set[str]) -> None:
    assert _symbols("javascript", text) == expected


@pytest.mark.parametrize("language", ["javascript", "typescript"])
def test_names_that_are_taken_out_of_a_value_are_defined_but_not_those_of_an_import(language: str) -> None:
    text = """
const [isRequest, isResponse] = ['Request', 'Response'].map(kindOfTest)
export const { reducer, actions: cartActions } = slice
const { parse } = require('./parse'), { join } = await import('path')
"""
    expected = {"variable isRequest", "variable isResponse", "variable reducer", "variable cartActions"}
    assert _symbols(language, text) == expected


def test_kotlin_classes_with_annotations_on_lines_of_their_own() -> None:
    text = """
@Service
@Transactional(timeout = seconds(3))
open class Users {
    fun find() {}
}

@MustBeDocumented
@Target(AnnotationTarget.CLASS)
public annotation class Preview

fun after() {}
"""
    assert _symbols("kotlin", text) == {"class Users", "method Users.find", "class Preview", "function after"}


def test_an_annotation_that_is_not_closed_takes_linear_time() -> None:
    assert _symbols("kotlin", "@A(\n" * 20_000 + "class After") <= {"class After"}


def test_functions_of_a_script_that_the_parser_does_not_understand_are_found() -> None:
    script = (
        b"first() {\n  a && rc=$? || case $rc in ( 1 ) { :; };; esac; ((\n}\n"
        b"cat <<-END\nnot_one() {\n\tEND\n\nfunction second {\n  echo\n}\n  third () (\n    echo\n  )\nfourth() { :; }\n"
    )
    language = catalog.named("bash")
    assert language is not None
    symbols = parse.symbols(language, script)
    found = {(one.name, one.line, one.end_line) for one in symbols if one.kind == "function"}
    assert {name for name, _, _ in found} == {"first", "second", "third", "fourth"}
    assert {("second", 8, 10), ("third", 11, 13), ("fourth", 14, 14)} <= found


def test_a_script_of_unclosed_functions_and_here_documents_is_read_once() -> None:
    """To search for the end of each one again would take hours."""
    rows = 100_000
    assert sum(1 for _ in shell_functions.functions(b"a()\n" * rows)) == rows
    assert list(shell_functions.functions(b"cat <<EOF\n" * rows + b"f() {\n}\n")) == [("f", rows + 1, rows + 2)]
