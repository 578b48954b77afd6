// SPDX-License-Identifier: Apache-2.0
// code.ts: code contexts and their rich results.
import { parseSSEStream } from '@cloudflare/sandbox';
import { area, equal, fails, includes, ok } from './check';

const check = area('code');

check('runCode: python, and its value', async ({ box }) => {
  const r = await box.runCode('print("hello")\n6 * 7');
  includes(r.logs.stdout.join(''), 'hello');
  equal([r.results[0].text, r.error], ['42', undefined]);
});

check('runCode: javascript and typescript', async ({ box }) => {
  const js = await box.runCode('console.log("logged"); const v = await Promise.resolve({ status: "fine" }); v', { language: 'javascript' });
  includes(js.logs.stdout.join(''), 'logged');
  equal(js.results[0].json, { status: 'fine' });
  const ts = await box.runCode('interface P { n: number }\nconst p: P = { n: 5 };\np.n + 1', { language: 'typescript' });
  equal(ts.results[0].text, '6');
});

check('contexts: state stays, and apart', async ({ box }) => {
  const [one, two] = await Promise.all([box.createCodeContext({ language: 'python' }), box.createCodeContext({ language: 'python' })]);
  await box.runCode('x = 41', { context: one });
  equal((await box.runCode('x + 1', { context: one })).results[0].text, '42');
  equal((await box.runCode('x', { context: two })).error?.name, 'NameError');
  const ids = (await box.listCodeContexts()).map((c) => c.id);
  ok(ids.includes(one.id) && ids.includes(two.id), 'both are listed');
  await box.deleteCodeContext(one.id);
  ok(!(await box.listCodeContexts()).some((c) => c.id === one.id), 'one is gone');
  await fails(box.runCode('1', { context: one }), 'Error');
  await fails(box.deleteCodeContext(one.id), 'Error');
});

check('contexts: directory and variables', async ({ box }) => {
  await box.mkdir('/workspace/place');
  const c = await box.createCodeContext({ language: 'python', cwd: '/workspace/place', envVars: { MOOD: 'calm' } });
  equal([c.language, c.cwd], ['python', '/workspace/place']);
  ok(c.createdAt instanceof Date, 'createdAt is a date');
  const r = await box.runCode('import os\n(os.getcwd(), os.environ["MOOD"])', { context: c });
  equal(r.results[0].text, "('/workspace/place', 'calm')");
});

check('rich results: a table, a picture, json, markdown, latex, svg', async ({ box }) => {
  const r = await box.runCode(`
import pandas as pd, matplotlib.pyplot as plt
from IPython.display import display, Markdown, Latex, SVG
display(Markdown('# title')); display(Latex('$x^2$')); display(SVG('<svg xmlns="http://www.w3.org/2000/svg"/>'))
plt.plot([1, 2, 3])
pd.DataFrame({'a': [1, 2]})`);
  equal(r.error, undefined);
  const all = (key: 'png' | 'html' | 'markdown' | 'latex' | 'svg') => r.results.map((x) => x[key]).filter(Boolean).join('');
  ok(all('png').startsWith('iVBOR'), 'a png');
  includes(all('html'), '<table');
  includes(all('markdown'), '# title');
  includes(all('latex'), 'x^2');
  includes(all('svg'), '<svg');
  equal((await box.runCode('{"a": [1, 2]}')).results[0].json, { a: [1, 2] });
});

check('errors: name, message, traceback', async ({ box }) => {
  const r = await box.runCode('def f():\n    return 1 / 0\nf()');
  equal(r.error?.name, 'ZeroDivisionError');
  includes(r.error?.message, 'division');
  ok(r.error!.traceback.length > 0, 'a traceback');
  includes((await box.runCode('throw new TypeError("bad")', { language: 'javascript' })).error?.message, 'bad');
});

check('callbacks', async ({ box }) => {
  const seen = await box.codeCallbacks('import sys\nprint("o")\nprint("e", file=sys.stderr)\n5');
  equal(seen.sort(), ['err e', 'out o', 'result 5']);
  ok((await box.codeCallbacks('raise ValueError("v")')).includes('error ValueError'), 'the error');
});

check('runCodeStream: events', async ({ box }) => {
  const kinds: string[] = [];
  const stream = (await box.runCodeStream('print("x")\n[1, 2]')) as ReadableStream<Uint8Array>;
  for await (const e of parseSSEStream<{ type: string }>(stream)) kinds.push(e.type);
  equal([kinds.includes('stdout'), kinds.includes('result'), kinds.at(-1)], [true, true, 'execution_complete']);
});

check('files are shared between commands and code', async ({ box }) => {
  await box.runCode('open("/workspace/from-python", "w").write("p")');
  equal((await box.exec('cat /workspace/from-python')).stdout, 'p');
  equal((await box.runCode("require('fs').readFileSync('/workspace/from-python', 'utf8')", { language: 'javascript' })).results[0].text?.includes('p'), true);
});
