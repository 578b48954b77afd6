// SPDX-License-Identifier: Apache-2.0
// main.js: one JavaScript or TypeScript context.
//
// Started by the agent as `main.js FD`, FD being its end of the channel; standard output and error are pipes to the agent.
// Requests:  {"op":"load"}   what TypeScript needs
//            {"op":"wait","nonce"}   it will be given a context later; answered by "w" when all is loaded
//            {"op":"init","nonce","language","cwd","env"}   once, before any run; answered by "h"
//            {"op":"run","run","count","code"}
// Messages:  w0 {}  loaded        h0 {...}  here        b<n> {}  the run begins: from now on it can be interrupted
//            r<n> {...}  a result        e<n> {...}  the error        d<n> {}  the run is over
// A waiting process has had no init: the agent keeps some ready and gives one a language and a directory when it is needed.
// User code runs in this very realm, as in Node's own prompt; what the program itself needs is bound before the first cell.
'use strict';

const { createRequire } = require('module');
const path = require('path');
const { Writable } = require('stream');
const v8 = require('v8');
const vm = require('vm');

const { Channel, writeAll } = require('./channel.js');
const { rewrite } = require('./rewrite.js');
const values = require('./values.js');

const typescript = require('./typescript.js');

// Hardly any cell is run twice: remembering their compiled forms only costs memory.
v8.setFlagsFromString('--no-compilation-cache');

const LOADER = vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER;
const { setImmediate: soon } = globalThis;

let language = 'javascript';
let directory = null; // where modules are looked for
let interrupt = null; // ends the wait for the running cell
let queue = Promise.resolve();

class ExitError extends Error {
  constructor(code) {
    super(`process.exit(${code === undefined ? '' : code}) ends a program; a context stays`);
    this.name = 'ExitError';
  }
}

class Interrupted extends Error {
  constructor() {
    super('the run was interrupted');
    this.name = 'KeyboardInterrupt';
    this.stack = '';
  }
}

// Node's own streams queue what a full pipe does not take, without limit. These wait, as a program should.
function makeStream(fd) {
  const stream = new Writable({
    decodeStrings: true,
    write(chunk, encoding, done) {
      try {
        writeAll(fd, chunk);
        done();
      } catch (e) {
        done(e);
      }
    },
  });
  stream.fd = fd;
  stream.on('error', () => {}); // closed by user code: nothing to tell and nobody to tell it to
  return stream;
}

function prepare() {
  for (const [name, fd] of [['stdout', 1], ['stderr', 2]]) {
    const stream = makeStream(fd);
    Object.defineProperty(process, name, { configurable: true, enumerable: true, get: () => stream });
  }
  process.argv = [process.argv[0], ''];
  process.exit = (code) => {
    throw new ExitError(code);
  };
  process.on('SIGINT', () => interrupt && interrupt(new Interrupted()));
  process.on('uncaughtException', (e) => tell('Uncaught', e));
  process.on('unhandledRejection', (e) => tell('Uncaught (in promise)', e));
  globalThis.module = { exports: {} };
  globalThis.exports = globalThis.module.exports;
}

function tell(what, error) {
  if (error instanceof Interrupted) return;
  const { ename, evalue, traceback } = values.failure(error);
  process.stderr.write(`${what} ${traceback.length ? traceback.join('\n') : `${ename}: ${evalue}`}\n`);
}

// Modules are looked for from the current directory, wherever the code has gone meanwhile.
function settle(file) {
  const here = process.cwd();
  if (here !== directory) {
    directory = here;
    globalThis.require = createRequire(path.join(here, 'cell.js'));
    globalThis.__dirname = here;
  }
  globalThis.__filename = path.join(here, file);
}

function wait(request) {
  channel.nonce = request.nonce;
  channel.send('w', 0, {});
}

function init(request) {
  channel.nonce = request.nonce;
  language = request.language;
  Object.assign(process.env, request.env);
  try {
    process.chdir(request.cwd);
  } catch (e) {
    return { error: `${request.cwd}: ${e.message}` };
  }
  return {};
}

// The scripts of a cell, or an error event.
function translate(source, file) {
  let code = source;
  try {
    if (language === 'typescript') code = typescript.transpile(source);
    return { plan: rewrite(code) };
  } catch (e) {
    if (e instanceof typescript.TranspileError) return { error: values.syntaxFailure(e, source, file) };
    try {
      new vm.Script(code, { filename: file }); // syntax which V8 knows and our parser does not
      return { plan: { async: false, hasValue: true, scripts: [{ code, columnOffset: 0 }] } };
    } catch {
      return { error: values.syntaxFailure(e, code, file) };
    }
  }
}

async function evaluate(plan, file, run) {
  const interrupted = new Promise((_, reject) => {
    interrupt = reject;
  });
  interrupted.catch(() => {});
  channel.send('b', run, {});
  let value;
  for (const { code, columnOffset } of plan.scripts) {
    const script = new vm.Script(code, { filename: file, columnOffset, importModuleDynamically: LOADER });
    value = script.runInThisContext({ displayErrors: false, breakOnSigint: true });
  }
  if (!plan.hasValue) return undefined;
  return await Promise.race([value, interrupted]);
}

// Returns the error event of the cell, or null.
async function executeCell({ run, count, code }) {
  const file = `cell-${count}.${language === 'typescript' ? 'ts' : 'js'}`;
  const { plan, error } = translate(code, file);
  if (!plan) return error;
  settle(file);
  try {
    const event = values.result(await evaluate(plan, file, run));
    if (event) channel.send('r', run, event);
    return null;
  } catch (e) {
    const broken = e && e.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED';
    return values.failure(broken ? new Interrupted() : e, { file, lines: code.split('\n').length });
  } finally {
    interrupt = null;
    await new Promise((done) => soon(done)); // rejections nobody waits for are told before the end
  }
}

async function execute(request) {
  let error;
  try {
    error = await executeCell(request);
  } catch (e) {
    error = values.failure(e); // the code has taken something away that this program needs
  }
  if (error) channel.send('e', request.run, error);
  channel.send('d', request.run, {});
}

function onRequest(request) {
  if (request.op === 'load') typescript.load();
  else if (request.op === 'wait') wait(request);
  else if (request.op === 'init') channel.send('h', 0, init(request));
  else if (request.op === 'run') queue = queue.then(() => execute(request));
}

const channel = new Channel(Number(process.argv[2]), onRequest, process.reallyExit.bind(process, 0));
prepare();
