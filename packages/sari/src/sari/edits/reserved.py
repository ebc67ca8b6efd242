"""The words that each language reserves, so that no identifier can have that name. Pure.

Only words that are reserved everywhere: `get`, `record` or `async` are names where they are not keywords. A grammar does
not tell them apart, and parses many reserved words as names.
"""

from __future__ import annotations

import keyword

_C = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long "
    "register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while"
)
_CPP = (
    "alignas alignof and asm bool catch char16_t char32_t char8_t class co_await co_return co_yield concept "
    "consteval constexpr constinit const_cast decltype delete dynamic_cast explicit export false friend mutable "
    "namespace new noexcept not nullptr operator or private protected public reinterpret_cast requires "
    "static_assert static_cast template this thread_local throw true try typeid typename using virtual wchar_t xor"
)
_JAVASCRIPT = (
    "await break case catch class const continue debugger default delete do else enum export extends false finally "
    "for function if implements import in instanceof interface let new null package private protected public return "
    "static super switch this throw true try typeof var void while with yield"
)
_WORDS = {
    "c": _C,
    "cpp": f"{_C} {_CPP}",
    "javascript": _JAVASCRIPT,
    "typescript": _JAVASCRIPT,
    "tsx": _JAVASCRIPT,
    "go": (
        "break case chan const continue default defer else fallthrough for func go goto if import interface map package "
        "range return select struct switch type var"
    ),
    "rust": (
        "abstract as async await become box break const continue crate do dyn else enum extern false final fn for if "
        "impl in let loop macro match mod move mut override priv pub ref return self Self static struct super trait "
        "true try type typeof unsafe unsized use virtual where while yield"
    ),
    "java": (
        "_ abstract assert boolean break byte case catch char class const continue default do double else enum extends "
        "false final finally float for goto if implements import instanceof int interface long native new null package "
        "private protected public return short static strictfp super switch synchronized this throw throws transient "
        "true try void volatile while"
    ),
    "csharp": (
        "abstract as base bool break byte case catch char checked class const continue decimal default delegate do "
        "double else enum event explicit extern false finally fixed float for foreach goto if implicit in int interface "
        "internal is lock long namespace new null object operator out override params private protected public readonly "
        "ref return sbyte sealed short sizeof stackalloc static string struct switch this throw true try typeof uint "
        "ulong unchecked unsafe ushort using virtual void volatile while"
    ),
    "ruby": (
        "BEGIN END alias and begin break case class def defined do else elsif end ensure false for if in module next "
        "nil not or redo rescue retry return self super then true undef unless until when while yield"
    ),
    "php": (
        "abstract and array as break callable case catch class clone const continue declare default die do echo else "
        "elseif empty enddeclare endfor endforeach endif endswitch endwhile eval exit extends final finally fn for "
        "foreach function global goto if implements include include_once instanceof insteadof interface isset list "
        "match namespace new or print private protected public readonly require require_once return static switch throw "
        "trait try unset use var while xor yield"
    ),
    "kotlin": (
        "as break class continue do else false for fun if in interface is null object package return super this throw "
        "true try typealias typeof val var when while"
    ),
    "swift": (
        "Any Self as associatedtype break case catch class continue default defer deinit do else enum extension "
        "fallthrough false fileprivate for func guard if import in init inout internal is let nil operator private "
        "protocol public repeat rethrows return self static struct subscript super switch throw throws true try "
        "typealias var where while"
    ),
    "bash": "case do done elif else esac fi for function if in select then time until while",
}
_RESERVED = {
    "python": frozenset(keyword.kwlist),
    **{language: frozenset(words.split()) for language, words in _WORDS.items()},
}


def is_reserved(word: str, language: str) -> bool:
    """Whether this language reserves the word."""
    return word in _RESERVED[language]
