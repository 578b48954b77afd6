# SPDX-License-Identifier: Apache-2.0
"""JavaScript and TypeScript contexts; interpreter.md sections 8, 9 and 14."""
import pytest
from interpreter import folder, javascript, lab, make, python, typescript  # noqa: F401


def value(run):
    """What a client finds: text or json."""
    assert run.error is None, run.error
    assert len(run.results) == 1, run.results
    return run.results[0].get("text", run.results[0].get("json"))


# ---------------------------------------------------------------------- the check list


def test_check_list(lab, javascript):
    assert lab.run("console.log('Hello')", javascript).stdout == "Hello\n"
    lab.run("global.counter = 0;", javascript)
    assert lab.run("console.log(++global.counter)", javascript).stdout == "1\n"
    assert "42" in lab.run("const result = await Promise.resolve(42);\nresult", javascript).results[0]["text"]
    run = lab.run('await Promise.reject(new Error("async error"))', javascript)
    assert run.error["ename"] == "Error" and run.error["evalue"] == "async error" and run.results == []
    assert lab.run("({ status: 'ok', list: [1] })", javascript).results[0]["json"]["status"] == "ok"
    lab.run("const persistedValue = await Promise.resolve('kept')", javascript)
    assert value(lab.run("persistedValue", javascript)) == "'kept'"
    assert value(lab.run("Promise.resolve(123)", javascript)) == "123"
    assert value(lab.run("(async () => 'hello world')()", javascript)) == "'hello world'"
    assert lab.run("console.log(undefinedVariable)", javascript).error["ename"] == "ReferenceError"
    assert value(lab.run("const contextValue = 1; contextValue;", javascript)) == "1"
    assert value(lab.run("contextValue;", javascript)) == "1"


def test_files_are_shared_between_languages(lab, python, javascript, folder):
    lab.run(f"open('{folder}/shared', 'w').write('from python')", python)
    assert lab.run(f"const fs = require('fs'); console.log(fs.readFileSync('{folder}/shared', 'utf8'))", javascript).stdout == "from python\n"


# ---------------------------------------------------------------------- values


@pytest.mark.parametrize(
    "code, text",
    [
        ("'hello'", "'hello'"), ("null", "null"), ("10n", "10n"), ("true", "true"), ("Symbol('s')", "Symbol(s)"),
        ("const u = 1", "1"), ("function f() {}", "[Function: f]"), ("class A {}", "[class A]"), ("() => 1", "[Function (anonymous)]"),
        ("new Map([[1, 2]])", "Map(1) { 1 => 2 }"), ("const cyclic = {}; cyclic.self = cyclic; cyclic", "<ref *1> { self: [Circular *1] }"),
        ("let [a, ...rest] = [1, 2]; a", "1"), ("({ toJSON() { return undefined } })", "{ toJSON: [Function: toJSON] }"),
    ],
)  # fmt: skip
def test_text(lab, javascript, code, text):
    assert value(lab.run(code, javascript)) == text


@pytest.mark.parametrize("code", ["undefined", "if (1) { 5 }", "for (let i = 0; i < 2; i++) i", "try { 1 } catch {}", "var v;", "// nothing"])
def test_nothing(lab, javascript, code):
    run = lab.run(code, javascript)
    assert run.results == [] and run.error is None


def test_objects_are_json_and_text(lab, javascript):
    result = lab.run("({ a: [1, { b: null }], f() {}, d: new Date(0) })", javascript).results[0]
    assert result["json"] == {"a": [1, {"b": None}], "d": "1970-01-01T00:00:00.000Z"}
    assert result["data"]["text/plain"].startswith("{\n  a: [ 1, { b: null } ],")


# ---------------------------------------------------------------------- declarations


def test_declarations_outlive_the_run_and_can_be_repeated(lab, javascript):
    for number in (1, 2):
        lab.run(f"const c = {number}; let l = {number}; class K {{ n() {{ return {number} }} }}; function f() {{ return {number} }}", javascript)
        assert value(lab.run("[c, l, new K().n(), f()]", javascript)) == [number] * 4
        lab.run(f"const c = await {number * 10}, {{ l }} = {{ l: {number * 10} }}; class K {{ n() {{ return c }} }}", javascript)
        assert value(lab.run("[c, l, new K().n()]", javascript)) == [number * 10] * 3
    assert value(lab.run("let l; l === undefined", javascript)) == "true", "declared without a value it has none"


def test_a_function_defined_again_is_used_by_older_ones(lab, javascript):
    lab.run("function helper() { return 1 }; function main() { return helper() }", javascript)
    lab.run("await 0; function helper() { return 2 }", javascript)
    assert value(lab.run("main()", javascript)) == "2"


def test_no_trap_without_semicolons(lab, javascript):
    assert value(lab.run("let one = 1\nconst two = await Promise.resolve(2)\nconst {three} = {three: 3}\n;[one, two, three]", javascript)) == [1, 2, 3]


def test_strict_code(lab, javascript):
    assert lab.run("'use strict'; undeclaredName = 1", javascript).error["ename"] == "ReferenceError"


# ---------------------------------------------------------------------- modules


def test_import_and_require(lab, make, folder):
    folder.write("own.mjs", "export const answer = 42; export default function named() { return 'd' }")
    folder.write("data.json", '{"k": 7}')
    folder.write("node_modules/pkg/index.js", "exports.who = 'pkg'")
    context = make("javascript", cwd=str(folder))
    assert value(lab.run("import path, { join as j } from 'path';\nimport * as os from 'node:os'\n;[j('a', 'b'), typeof path.join, os.EOL]", context)) == ["a/b", "function", "\n"]
    assert value(lab.run("import d, { answer } from './own.mjs'; [answer, d()]", context)) == [42, "d"]
    assert value(lab.run("import { who } from 'pkg'; who", context)) == "'pkg'"
    assert value(lab.run("require('pkg').who", context)) == "'pkg'"
    assert value(lab.run("require('./data.json').k", context)) == "7"
    assert value(lab.run("(await import('./own.mjs')).answer", context)) == "42"
    assert value(lab.run("import data from './data.json' with { type: 'json' }; data.k", context)) == "7"
    assert value(lab.run("export const e = 5; e", context)) == "5"
    assert lab.run("import x from 'no-such-package'", context).error["ename"] == "Error"
    assert value(lab.run("[typeof fetch, typeof URL, typeof structuredClone, typeof Buffer, __dirname]", context)) == ["function"] * 4 + [str(folder)]


# ---------------------------------------------------------------------- output and errors


def test_console(lab, javascript):
    run = lab.run("console.log('o1', { a: 1 }); console.info('o2'); console.warn('e1'); console.error('e2'); process.stdout.write('raw\\n')", javascript)
    assert run.stdout == "o1 { a: 1 }\no2\nraw\n" and run.stderr == "e1\ne2\n"
    assert "│ 0" in lab.run("console.table([{ a: 1 }])", javascript).stdout
    run = lab.run("require('child_process').execSync('echo child; echo err >&2', { stdio: 'inherit' }); 0", javascript)
    assert run.stdout == "child\n" and run.stderr == "err\n"


def test_a_megabyte_of_output(lab, javascript):
    assert len(lab.run("for (let i = 0; i < 1024; i++) process.stdout.write('x'.repeat(1024))", javascript).stdout) == 1 << 20


def test_stack_starts_at_the_user_s_code(lab, javascript):
    run = lab.run("function outer() { inner() }\nfunction inner() { throw new TypeError('bad') }\nouter()", javascript)
    assert run.error["ename"] == "TypeError" and run.error["evalue"] == "bad"
    count = run.last["execution_count"]
    assert run.error["traceback"] == [
        "TypeError: bad",
        f"    at inner (cell-{count}.js:2:26)",
        f"    at outer (cell-{count}.js:1:20)",
        f"    at cell-{count}.js:3:1",
    ]
    run = lab.run("await 1;\nthrow new RangeError('r')", javascript)
    assert run.error["traceback"][1:] == [f"    at cell-{run.last['execution_count']}.js:2:7"]
    run = lab.run("throw new Error('m', { cause: new Error('c') })", javascript)
    assert any("[cause]: Error: c" in line for line in run.error["traceback"])
    assert lab.run("throw 'a string'", javascript).error["evalue"] == "a string"


def test_syntax_errors_have_positions(lab, javascript):
    run = lab.run("let fine = 1\nlet x = ;", javascript)
    assert run.error["ename"] == "SyntaxError" and "(2:9)" in run.error["evalue"] and run.results == []
    assert run.error["traceback"][1:3] == ["let x = ;", "        ^"]
    assert lab.run("typeof fine", javascript).text == "'undefined'", "nothing of it was run"


def test_errors_nobody_waits_for(lab, javascript):
    run = lab.run("Promise.reject(new Error('alone')); 1", javascript)
    assert "alone" in run.stderr and run.text == "1"
    run = lab.run("setTimeout(() => { throw new Error('timer') }, 1); await new Promise(r => setTimeout(r, 50)); 2", javascript)
    assert "timer" in run.stderr and run.text == "2"


def test_process_exit(lab, javascript):
    lab.run("const kept = 1", javascript)
    assert lab.run("process.exit(3)", javascript).error["ename"] == "ExitError"
    assert value(lab.run("kept", javascript)) == "1"


# ---------------------------------------------------------------------- TypeScript


def test_typescript(lab, typescript):
    assert value(lab.run("const x: number = 5; x", typescript)) == "5"
    assert value(lab.run("interface P { a: string }\nconst p: P = { a: '1' }; p", typescript)) == {"a": "1"}
    assert value(lab.run("const g = <T,>(v: T): T => v; g<string>(await Promise.resolve('s'))", typescript)) == "'s'"
    assert value(lab.run("x as unknown as string", typescript)) == "5"
    assert value(lab.run("import type { Nope } from 'nowhere'; import { join } from 'path'; join('a', 'b')", typescript)) == "'a/b'"
    assert value(lab.run("function over(a: string): void; function over(a: any) { return a }\nover(3)", typescript)) == "3"


def test_typescript_that_is_more_than_types(lab, typescript):
    assert value(lab.run("enum Color { Red, Green = 5 }\nColor.Green", typescript)) == "5"
    assert value(lab.run("Color[5]", typescript)) == "'Green'"
    assert value(lab.run("class Q { constructor(private z: number) {} get() { return this.z } }\nnew Q(4).get()", typescript)) == "4"
    assert value(lab.run("namespace N { export const q = 1 }\nN.q", typescript)) == "1"


def test_typescript_errors(lab, typescript):
    run = lab.run("const fine = 1\nconst y: = 3", typescript)
    assert run.error["ename"] == "TranspileError" and "(2:10)" in run.error["evalue"]
    run = lab.run("const n: number = 1;\nthrow new Error('pos')", typescript)
    assert run.error["traceback"][1] == f"    at cell-{run.last['execution_count']}.ts:2:7", "positions are those of the source"
    assert lab.run("const text: string = 5 as any; text", typescript).text == "5", "types are not checked"
