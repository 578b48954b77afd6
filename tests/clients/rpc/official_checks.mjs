// SPDX-License-Identifier: Apache-2.0
// The control client inside of @cloudflare/sandbox against /rpc: node official_checks.mjs URL DIRECTORY HEADERS
// It closes its connection when nothing is left in its tables: what we forget to release shows. Prints one JSON line
// per check: {check, ok, error}.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { register } from 'node:module';
import WebSocket from 'ws';
import { events, text } from './session.mjs';

register('./official_hooks.mjs', import.meta.url);
const entry = import.meta.resolve('@cloudflare/sandbox');
const inner = fs.readdirSync(new URL('.', entry)).find((name) => /^sandbox-.*\.js$/.test(name));
const { ContainerControlClient, SandboxError } = await import(new URL(inner, entry));

const [url, dir, headersText] = process.argv.slice(2);
const headers = JSON.parse(headersText);
const S = 'official-' + process.pid;

function open() {
  const sockets = [];
  const stub = {
    fetch: () => new Promise((resolve, reject) => {
      const socket = new WebSocket(url, { headers, perMessageDeflate: false });
      socket.accept = () => {};
      sockets.push(socket);
      socket.on('open', () => resolve({ status: 101, webSocket: socket }));
      socket.on('error', reject);
    }),
  };
  const client = new ContainerControlClient({ stub, port: 3000, idleDisconnectMs: 100, busyPollIntervalMs: 50 });
  return { client, sockets };
}

async function until(condition, what) {
  for (let i = 0; i < 6000; i++) {
    if (await condition()) return;
    await new Promise((r) => setTimeout(r, 10));
  }
  assert.fail('in vain: ' + what);
}

const closed = ({ client, sockets }) => until(() => !client.isWebSocketConnected() && sockets.at(-1).readyState === WebSocket.CLOSED, 'the idle connection is closed');

const checks = {
  async 'a command'({ client }) {
    const result = await client.commands.execute('echo hi', S);
    assert.equal(result.stdout.trim(), 'hi');
    assert.equal(result.exitCode, 0);
  },
  async 'the connection is closed when idle, and opened again'(c) {
    assert.equal(await c.client.utils.ping(), 'healthy');
    await closed(c);
    assert.equal(await c.client.utils.ping(), 'healthy');
    assert.equal(c.sockets.length, 2);
    await closed(c);
  },
  async 'errors have their classes'({ client }) {
    const caught = async (promise) => { try { await promise; } catch (e) { return e; } return assert.fail('no error'); };
    const missing = await caught(client.files.readFile(`${dir}/nope`, S));
    assert.ok(missing instanceof SandboxError);
    assert.equal(missing.name, 'FileNotFoundError');
    assert.equal(missing.code, 'FILE_NOT_FOUND');
    assert.equal(missing.httpStatus, 404);
    assert.equal(missing.context.path, `${dir}/nope`);
    assert.equal((await caught(client.processes.getProcess('nobody'))).name, 'ProcessNotFoundError');
    assert.equal((await caught(client.commands.execute('exit 3', S + '-gone'))).name, 'SessionTerminatedError');
    await client.utils.createSession({ id: S + '-twice' });
    assert.equal((await caught(client.utils.createSession({ id: S + '-twice' }))).name, 'SessionAlreadyExistsError');
    assert.equal((await caught(client.files.readFile('', S))).name, 'ValidationFailedError');
  },
  async 'a stream keeps the connection, its end lets it go'(c) {
    const stream = await c.client.commands.executeStream('for i in 1 2 3; do echo $i; sleep 0.2; done', S);
    assert.ok(c.client.isWebSocketConnected());
    const got = events(await text(stream));
    assert.deepEqual(got.filter((e) => e.data.type === 'stdout').map((e) => e.data.data), ['1\n', '2\n', '3\n']);
    await closed(c);
  },
  async 'a cancelled stream lets it go'(c) {
    const stream = await c.client.commands.executeStream('while sleep 0.02; do echo tick; done', S);
    const reader = stream.getReader();
    await reader.read();
    await reader.cancel();
    await closed(c);
    await c.client.processes.killAllProcesses();
  },
  async 'files both ways'(c) {
    const data = Buffer.alloc(3000000, 'abc');
    const source = new ReadableStream({ start(s) { for (let i = 0; i < data.length; i += 100000) s.enqueue(data.subarray(i, i + 100000)); s.close(); } });
    assert.equal((await c.client.files.writeFileStream(`${dir}/official.bin`, source, S)).bytesWritten, data.length);
    const { content, size } = await c.client.files.readFile(`${dir}/official.bin`, S, { encoding: 'none' });
    assert.equal(size, data.length);
    assert.equal(await text(content), data.toString());
    await closed(c);
  },
  async 'code with callbacks'(c) {
    const context = await c.client.interpreter.createCodeContext({ language: 'javascript' });
    const seen = [];
    await c.client.interpreter.runCodeStream(context.id, 'console.log("x"); 6 * 7', undefined, {
      onStdout: (o) => { seen.push(o.text); }, onStderr() {}, onResult: (r) => { seen.push(r.text); }, onError: (e) => { seen.push(e); },
    }, undefined);
    assert.deepEqual(seen, ['x\n', '42']);
    await c.client.interpreter.deleteCodeContext(context.id);
    await closed(c);
  },
  async 'a lost connection'(c) {
    const pending = c.client.commands.execute('sleep 5', S + '-lost');
    await until(() => c.client.isWebSocketConnected(), 'connected');
    c.sockets.at(-1).terminate();
    await assert.rejects(async () => pending, { code: 'OPERATION_INTERRUPTED' });
    assert.equal(await c.client.utils.ping(), 'healthy');
  },
};

process.on('unhandledRejection', () => {});
for (const [check, run] of Object.entries(checks)) {
  const opened = open();
  let error = null;
  try {
    await run(opened);
  } catch (e) {
    error = String(e?.stack ?? e).slice(0, 2000);
  }
  opened.client.disconnect();
  console.log(JSON.stringify({ check, ok: !error, error }));
}
process.exit(0);
