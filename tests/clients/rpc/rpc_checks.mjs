// SPDX-License-Identifier: Apache-2.0
// The npm package `capnweb` as a client of /rpc: node rpc_checks.mjs URL DIRECTORY HEADERS [CHECK...]
// Every method is called, and what it must answer is asserted. Prints one JSON line per check: {check, ok, error}.
// DIRECTORY is an empty directory inside the sandbox.
import assert from 'node:assert/strict';
import crypto from 'node:crypto';
import { bytes, connect, events, RpcTarget, text } from './session.mjs';

const [url, dir, headersText, ...wanted] = process.argv.slice(2);
const headers = JSON.parse(headersText);
const S = 'rpc-' + process.pid;
const NONE = '__DISABLE_SESSION__';
const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

async function rejects(promise, code, name = 'Error') {
  try {
    await promise;
  } catch (error) {
    assert.equal(error.name, name, error.stack);
    assert.equal(error.code, code, error.stack);
    return error;
  }
  assert.fail(`not rejected with ${code}`);
}

function stamped(result) {
  assert.match(result.timestamp, ISO);
  const { timestamp, ...rest } = result;
  return rest;
}

async function until(condition, what) {
  for (let i = 0; i < 6000; i++) {
    if (await condition()) return;
    await new Promise((r) => setTimeout(r, 10));
  }
  assert.fail('in vain: ' + what);
}

function chunks(...parts) {
  return new ReadableStream({ start(c) { for (const p of parts) c.enqueue(p); c.close(); } });
}

// A reader of events that can wait for one.
function follow(stream) {
  const reader = stream.getReader();
  let rest = '';
  const seen = [];
  return {
    seen,
    reader,
    async wait(fits) {
      for (;;) {
        const at = seen.findIndex(fits);
        if (at >= 0) return seen[at];
        const { done, value } = await reader.read();
        assert.ok(!done, 'the stream has ended: ' + JSON.stringify(seen));
        rest += Buffer.from(value).toString();
        const end = rest.lastIndexOf('\n\n') + 2;
        if (end > 1) {
          seen.push(...events(rest.slice(0, end)).map((e) => e.data));
          rest = rest.slice(end);
        }
      }
    },
  };
}

const checks = {
  // ---------------------------------------------------------------- utils
  async 'utils'({ api }) {
    assert.equal(await api.utils.ping(), 'healthy');
    assert.equal(typeof await api.utils.getVersion(), 'string');
    assert.deepEqual(await api.utils.getCommands(), []);
  },
  async 'utils.sessions'({ api }) {
    const id = S + '-sessions';
    const made = stamped(await api.utils.createSession({ id, env: { A: '1', B: undefined }, cwd: dir }));
    assert.deepEqual({ ...made, message: '', containerPlacementId: null }, { success: true, id, message: '', containerPlacementId: null });
    const again = await rejects(api.utils.createSession({ id }), 'SESSION_ALREADY_EXISTS');
    assert.equal(again.details.sessionId, id);
    assert.ok('containerPlacementId' in again.details);
    assert.ok((await api.utils.listSessions()).sessions.includes(id));
    assert.equal((await api.commands.execute('echo $A; pwd', id)).stdout.trim(), '1\n' + dir);
    assert.deepEqual(stamped(await api.utils.deleteSession(id)), { success: true, sessionId: id });
    await rejects(api.utils.deleteSession(id), 'INTERNAL_ERROR');
    assert.ok(!(await api.utils.listSessions()).sessions.includes(id));
  },

  // ---------------------------------------------------------------- commands
  async 'commands.execute'({ api }) {
    const result = stamped(await api.commands.execute('echo out; echo err >&2; (exit 3)', S));
    assert.deepEqual({ ...result, stdout: result.stdout.trim(), stderr: result.stderr.trim() },
      { success: false, exitCode: 3, stdout: 'out', stderr: 'err', command: 'echo out; echo err >&2; (exit 3)' });
    const options = { env: { X: 'y', Z: undefined }, cwd: '/', timeoutMs: 60000, origin: 'internal' };
    assert.equal((await api.commands.execute('echo $X$Z; pwd', S, options)).stdout.trim(), 'y\n/');
    assert.equal((await api.commands.execute('x=1', S)).exitCode, 0);
    assert.equal((await api.commands.execute('echo $x', S)).stdout.trim(), '1'); // the session has kept it
    assert.equal((await api.commands.execute('printf "κόσμε\\n"', NONE)).stdout.trim(), 'κόσμε');
    await rejects(api.commands.execute('sleep 60', S + '-slow', { timeoutMs: 50 }), 'COMMAND_EXECUTION_ERROR');
    const gone = await rejects(api.commands.execute('exit 7', S + '-gone'), 'SESSION_TERMINATED');
    assert.equal(gone.details.exitCode, 7);
  },
  async 'commands.execute large'({ api }) {
    const { stdout } = await api.commands.execute('seq 1 1000000', S);
    assert.equal(crypto.createHash('md5').update(stdout.trim() + '\n').digest('hex'),
      crypto.createHash('md5').update(Array.from({ length: 1e6 }, (_, i) => i + 1 + '\n').join('')).digest('hex'));
  },
  async 'commands.executeStream'({ api }) {
    const got = events(await text(await api.commands.executeStream('echo a; echo b >&2; exit 4', S)));
    for (const e of got) assert.equal(e.name, e.data.type);
    const [start] = got, last = got.at(-1);
    assert.equal(start.data.type, 'start');
    assert.equal(start.data.sessionId, S);
    assert.equal(start.data.command, 'echo a; echo b >&2; exit 4');
    assert.ok(start.data.pid > 0);
    const { timestamp, ...complete } = last.data;
    assert.deepEqual(complete, { type: 'complete', exitCode: 4 });
    assert.match(timestamp, ISO);
    const of = (type) => got.filter((e) => e.data.type === type).map((e) => e.data.data).join('');
    assert.equal(of('stdout'), 'a\n');
    assert.equal(of('stderr'), 'b\n');
  },
  async 'commands.executeStream that cannot start'({ api }) {
    const got = events(await text(await api.commands.executeStream('  ', S)));
    assert.equal(got.length, 1);
    assert.equal(got[0].name, 'error');
    assert.equal(got[0].data.type, 'error');
    assert.equal(typeof got[0].data.error, 'string');
  },
  async 'commands.executeStream timeout'({ api }) { // sessionless, the time counts
    const got = events(await text(await api.commands.executeStream('sleep 60', NONE, { timeoutMs: 100 })));
    assert.notEqual(got.at(-1).data.exitCode, 0);
  },
  async 'commands.executeStream large'({ api }) {
    const stream = await api.commands.executeStream('yes 0123456789abcdef | head -c 17000000', S);
    let total = 0;
    for (const e of events(await text(stream))) if (e.data.type === 'stdout') total += e.data.data.length;
    assert.equal(total, 17000000);
  },
  async 'streams: many at once'({ api }) {
    const got = await Promise.all(Array.from({ length: 50 }, async (_, i) =>
      events(await text(await api.commands.executeStream(`echo ${i}`, NONE)))));
    got.forEach((list, i) => assert.equal(list.find((e) => e.data.type === 'stdout').data.data, `${i}\n`));
  },
  async 'streams: cancelled by the reader'({ api, idle }) {
    const mark = `${dir}/ticks`;
    const stream = await api.commands.executeStream(`: > ${mark}; while sleep 0.02; do echo tick; echo >> ${mark}; done`, S);
    const reader = stream.getReader();
    await reader.read();
    await reader.cancel();
    await idle(); // our side has noticed at its next write, and released everything
    await until(async () => (await api.files.exists(mark, NONE)).exists, 'the command has begun');
    const size = async () => (await api.files.readFile(mark, NONE)).size;
    const before = await size(); // the command goes on
    await until(async () => await size() > before, 'the command still runs');
    await api.processes.killAllProcesses();
  },
  async 'streams: disposed without being read'({ api, idle }) {
    const promise = api.commands.executeStream('echo never read; sleep 0.1; echo twice', S);
    const stream = await promise;
    await stream.cancel();
    const other = api.commands.executeStream('echo nobody asks', S);
    other[Symbol.dispose]();
    await idle();
  },

  // ---------------------------------------------------------------- files
  async 'files.writeFile, readFile'({ api }) {
    const path = `${dir}/deep/er/κ.txt`;
    assert.deepEqual(stamped(await api.files.writeFile(path, 'κόσμε', S)), { success: true, path, bytesWritten: 10 });
    assert.deepEqual(stamped(await api.files.readFile(path, S)),
      { success: true, content: 'κόσμε', path, encoding: 'utf-8', isBinary: false, size: 10, mimeType: 'text/plain' });
    const base64 = await api.files.readFile(path, S, { encoding: 'base64' });
    assert.equal(Buffer.from(base64.content, 'base64').toString(), 'κόσμε');
    const written = await api.files.writeFile(path, 'aGk=', S, { encoding: 'base64', permissions: '0600' });
    assert.equal(written.bytesWritten, 4); // of the text as sent
    assert.equal((await api.files.readFile(path, S, { encoding: 'utf-8' })).content, 'hi');
    const missing = await rejects(api.files.readFile(`${dir}/nope`, S, undefined), 'FILE_NOT_FOUND');
    assert.deepEqual(missing.details, { path: `${dir}/nope`, operation: 'file.read' });
    const bad = await rejects(api.files.readFile('', S), 'VALIDATION_FAILED');
    assert.ok(Array.isArray(bad.details.validationErrors));
    await rejects(api.files.writeFile(path, new Uint8Array(3), S), 'VALIDATION_FAILED');
  },
  async 'files: relative to the session'({ api }) {
    const id = S + '-relative';
    await api.utils.createSession({ id, cwd: dir });
    await api.files.writeFile('rel.txt', 'one', id);
    const got = await api.files.readFile('rel.txt', id, { encoding: 'none' });
    assert.equal(got.path, 'rel.txt');
    assert.equal(await text(got.content), 'one');
    await api.files.writeFileStream('rel.txt', chunks(Buffer.from('two')), id);
    assert.equal((await api.files.readFile(`${dir}/rel.txt`, NONE)).content, 'two');
    await api.utils.deleteSession(id);
  },
  async 'files.readFile none'({ api, idle }) {
    const path = `${dir}/raw.bin`;
    await api.commands.execute(`head -c 40000000 /dev/urandom > ${path}`, NONE); // more than a read in one piece may have
    const sum = (await api.commands.execute(`md5sum < ${path}`, NONE)).stdout.slice(0, 32);
    const got = stamped(await api.files.readFile(path, S, { encoding: 'none' }));
    const { content, ...rest } = got;
    assert.deepEqual({ ...rest, mimeType: '' }, { success: true, path, size: 40000000, mimeType: '' });
    assert.equal(typeof rest.mimeType, 'string');
    assert.equal(crypto.createHash('md5').update(await bytes(content)).digest('hex'), sum);
    await rejects(api.files.readFile(`${dir}/nope`, S, { encoding: 'none' }), 'FILE_NOT_FOUND');
    await api.files.deleteFile(path, S);
    await idle();
  },
  async 'files.readFileStream'({ api }) {
    const path = `${dir}/stream.txt`;
    await api.files.writeFile(path, 'κ'.repeat(100000), S);
    const got = events(await text(await api.files.readFileStream(path, S)));
    assert.deepEqual(got[0].data, { type: 'metadata', mimeType: 'text/plain', size: 200000, isBinary: false, encoding: 'utf-8' });
    assert.equal(got.filter((e) => e.data.type === 'chunk').map((e) => e.data.data).join(''), 'κ'.repeat(100000));
    assert.deepEqual(got.at(-1), { data: { type: 'complete', bytesRead: 200000 } }); // without a name
    const failed = events(await text(await api.files.readFileStream(`${dir}/nope`, S)));
    assert.equal(failed.length, 1);
    assert.equal(failed[0].data.type, 'error');
  },
  async 'files.writeFileStream'({ api, idle }) {
    const path = `${dir}/up/load.bin`, size = 30000000, hash = crypto.createHash('md5');
    let made = 0;
    const source = new ReadableStream({
      pull(c) {
        const piece = crypto.randomBytes(Math.min(size - made, 1 + (made * 7919) % 300000));
        made += piece.length;
        hash.update(piece);
        c.enqueue(piece);
        if (made === size) c.close();
      },
    });
    assert.deepEqual(stamped(await api.files.writeFileStream(path, source, S)), { success: true, path, bytesWritten: size });
    assert.equal((await api.commands.execute(`md5sum < ${path}`, NONE)).stdout.slice(0, 32), hash.digest('hex'));
    await api.commands.execute(`chmod 0751 ${path}`, NONE); // what is there keeps its mode
    await api.files.writeFileStream(path, chunks(Buffer.from('short')), S);
    assert.equal((await api.commands.execute(`stat -c %a ${path}; cat ${path}`, NONE)).stdout.trim(), '751\nshort');
    await api.files.writeFileStream(path, chunks(), S);
    assert.equal((await api.files.readFile(path, S)).size, 0);
    await idle();
  },
  async 'files.writeFileStream that fails'({ api, idle }) {
    const path = `${dir}/broken.bin`;
    await api.files.writeFile(path, 'old', S);
    let n = 0;
    const failing = new ReadableStream({ pull(c) { if (++n < 5) c.enqueue(Buffer.alloc(100000)); else c.error(new Error('the source broke')); } });
    const error = await rejects(api.files.writeFileStream(path, failing, S), 'FILESYSTEM_ERROR');
    assert.match(error.message, /the source broke/);
    assert.equal((await api.files.readFile(path, S)).content, 'old');
    const aside = async () => (await api.files.listFiles(dir, S, { includeHidden: true })).files.some((f) => f.name.startsWith('.silica'));
    await until(async () => !await aside(), 'nothing is left aside'); // a worker removes it
    // the method fails early: an endless source is stopped
    let stopped = false;
    const endless = new ReadableStream({ pull(c) { c.enqueue(Buffer.alloc(65536)); }, cancel() { stopped = true; } });
    await rejects(api.files.writeFileStream(`${dir}/broken.bin/below`, endless, S), 'NOT_DIRECTORY');
    await until(() => stopped, 'the source is cancelled');
    await rejects(api.files.writeFileStream(path, chunks('text is no bytes'), S), 'FILESYSTEM_ERROR');
    await rejects(api.files.writeFileStream(path, 'no stream', S), 'VALIDATION_FAILED');
    await idle();
  },
  async 'files: the rest'({ api }) {
    const at = (name) => `${dir}/rest/${name}`;
    assert.deepEqual(stamped(await api.files.mkdir(at('a/b'), S, { recursive: true })), { success: true, path: at('a/b'), recursive: true });
    await rejects(api.files.mkdir(at('a/b'), S), 'FILESYSTEM_ERROR');
    await api.files.writeFile(at('a/one'), '1', S);
    await api.files.writeFile(at('a/.hidden'), '2', S);
    assert.deepEqual(stamped(await api.files.renameFile(at('a/one'), at('a/two'), S)),
      { success: true, path: at('a/one'), oldPath: at('a/one'), newPath: at('a/two') });
    assert.deepEqual(stamped(await api.files.moveFile(at('a/two'), at('a/b/three'), S)),
      { success: true, path: at('a/two'), newPath: at('a/b/three') });
    const list = stamped(await api.files.listFiles(at('a'), S, { recursive: true, includeHidden: false, sessionId: S }));
    assert.equal(list.success, true);
    assert.equal(list.path, at('a'));
    assert.equal(list.count, 2);
    assert.deepEqual(list.files.map((f) => f.relativePath).sort(), ['b', 'b/three']);
    assert.deepEqual(list.files.find((f) => f.name === 'b').permissions, { readable: true, writable: true, executable: true });
    assert.equal((await api.files.listFiles(at('a'), S, { includeHidden: true })).count, 2);
    assert.deepEqual(stamped(await api.files.exists(at('a/b/three'), S)), { success: true, exists: true, path: at('a/b/three') });
    assert.deepEqual(stamped(await api.files.deleteFile(at('a/b/three'), S)), { success: true, path: at('a/b/three') });
    assert.equal((await api.files.exists(at('a/b/three'), S)).exists, false);
    await rejects(api.files.deleteFile(at('a'), S), 'IS_DIRECTORY');
    await rejects(api.files.listFiles(at('nope'), S), 'FILE_NOT_FOUND');
  },

  // ---------------------------------------------------------------- processes, ports
  async 'processes'({ api }) {
    const processId = `a b/ü?%${process.pid}`; // an id no URL can hold
    const command = 'echo out; echo err >&2; echo $V; read line < /dev/null; sleep 60';
    const started = stamped(await api.processes.startProcess(command, S, { processId, env: { V: 'v' }, cwd: '/', encoding: 'utf8', autoCleanup: false }));
    assert.ok(started.pid > 0);
    assert.deepEqual({ ...started, pid: 1 }, { success: true, processId, pid: 1, command });
    const { processes } = await api.processes.listProcesses();
    const listed = processes.find((p) => p.id === processId);
    assert.equal(listed.status, 'running');
    assert.match(listed.startTime, ISO);
    assert.equal((await api.processes.getProcess(processId)).process.pid, started.pid);
    await until(async () => (await api.processes.getProcessLogs(processId)).stdout === 'out\nv\n', 'the output is there');
    const logs = stamped(await api.processes.getProcessLogs(processId));
    assert.deepEqual(logs, { success: true, processId, stdout: 'out\nv\n', stderr: 'err\n' });
    const stream = follow(await api.processes.streamProcessLogs(processId));
    await stream.wait((e) => e.type === 'stdout');
    assert.deepEqual(stamped(await api.processes.killProcess(processId)), { success: true, processId });
    const { timestamp, ...exit } = await stream.wait((e) => e.type === 'exit');
    assert.match(timestamp, ISO);
    assert.deepEqual({ ...exit, exitCode: 0 }, { type: 'exit', processId, exitCode: 0 });
    assert.ok(!stream.seen.some((e) => e.type === 'process_info'));
    assert.equal((await stream.reader.read()).done, true);
    const ended = (await api.processes.getProcess(processId)).process;
    assert.equal(ended.status, 'killed');
    assert.equal(ended.exitCode, exit.exitCode);
    await rejects(api.processes.killProcess(processId), 'COMMAND_NOT_FOUND');
    const unknown = await rejects(api.processes.getProcess('nobody/else'), 'PROCESS_NOT_FOUND');
    assert.equal(unknown.details.processId, 'nobody/else');
    await rejects(api.processes.streamProcessLogs('nobody'), 'PROCESS_NOT_FOUND');
    await rejects(api.processes.getProcessLogs(undefined), 'PROCESS_NOT_FOUND');
    await api.processes.startProcess('sleep 60', S);
    await api.processes.startProcess('sleep 60', S);
    assert.deepEqual(stamped(await api.processes.killAllProcesses()), { success: true, cleanedCount: 2 });
    await rejects(api.processes.startProcess(' ', S), 'INVALID_COMMAND');
  },
  async 'ports.watchPort'({ api }) {
    const server = 'import http.server as h; s = h.HTTPServer(("127.0.0.1", 0), h.SimpleHTTPRequestHandler); print(s.server_port, flush=True); s.serve_forever()';
    const { processId } = await api.processes.startProcess(`cd ${dir} && exec /usr/bin/python3 -c '${server}'`, S);
    const out = follow(await api.processes.streamProcessLogs(processId));
    const port = Number((await out.wait((e) => e.type === 'stdout')).data);
    const got = events(await text(await api.ports.watchPort({ port, mode: 'http', path: '/', statusMin: 200, statusMax: 299, processId, interval: 100 })));
    assert.deepEqual(got.map((e) => e.data), [{ type: 'watching', port }, { type: 'ready', port, statusCode: 200 }]);
    await out.reader.cancel();
    await api.processes.killAllProcesses();
    const gone = events(await text(await api.ports.watchPort({ port, mode: 'tcp', processId })));
    assert.equal(gone.at(-1).data.type, 'process_exited');
  },

  // ---------------------------------------------------------------- git, backup, watch
  async 'git.checkout'({ api }) {
    const made = await api.commands.execute(`git init -q -b trunk ${dir}/origin && cd ${dir}/origin && echo 1 > f && git add f && ` +
      'git -c user.name=n -c user.email=e@x commit -qm one', NONE);
    assert.equal(made.exitCode, 0, made.stderr);
    const target = `${dir}/clone`;
    assert.deepEqual(stamped(await api.git.checkout(`file://${dir}/origin`, S, { branch: 'trunk', targetDir: target, depth: 1, timeoutMs: 60000 })),
      { success: true, repoUrl: `file://${dir}/origin`, branch: 'trunk', targetDir: target });
    assert.equal((await api.files.readFile(`${target}/f`, S)).content, '1\n');
    const error = await rejects(api.git.checkout(`file://${dir}/nothing`, S, { targetDir: `${dir}/other` }), 'GIT_OPERATION_FAILED');
    assert.equal(error.details.exitCode, 128);
    const bad = await rejects(api.git.checkout('', S), 'INVALID_GIT_URL');
    assert.ok(Array.isArray(bad.details.validationErrors));
  },
  async 'backup'({ api }) {
    const archivePath = `/var/backups/${S}.sqsh`;
    const tools = (await api.commands.execute('test -x /usr/bin/mksquashfs', NONE)).exitCode === 0;
    const options = { excludes: ['node_modules'], gitignore: false, compression: { format: 'gzip', threads: 1 } };
    if (tools) {
      const made = await api.backup.createArchive(dir, archivePath, NONE, options);
      assert.ok(made.sizeBytes > 0);
      assert.deepEqual(made, { success: true, sizeBytes: made.sizeBytes, archivePath });
    } else {
      await rejects(api.backup.createArchive(dir, archivePath, NONE, options), 'BACKUP_CREATE_FAILED');
    }
    await rejects(api.backup.createArchive('/etc', archivePath, NONE, undefined), 'INVALID_BACKUP_CONFIG');
    await rejects(api.backup.restoreArchive(dir, '/var/backups/nothing.sqsh', NONE), 'BACKUP_RESTORE_FAILED');
    await rejects(api.backup.uploadParts({ archivePath, parts: [], sessionId: NONE }), 'INVALID_BACKUP_CONFIG');
    await api.commands.execute(`rm -f ${archivePath}`, NONE);
  },
  async 'watch.watch'({ api, idle }) {
    const path = `${dir}/watched`; // outside of /workspace: callers of /rpc may look anywhere
    await api.files.mkdir(path, S);
    const stream = follow(await api.watch.watch({ path, recursive: true, include: ['*.txt'], sessionId: S }));
    assert.equal((await stream.wait((e) => e.type === 'watching')).path, path);
    await api.files.writeFile(`${path}/a.txt`, '1', S);
    const { timestamp, ...event } = await stream.wait((e) => e.type === 'event');
    assert.deepEqual({ ...event, eventType: '' }, { type: 'event', eventType: '', path: `${path}/a.txt`, isDirectory: false });
    await stream.reader.cancel();
    await until(async () => { // a silent stream notices at its next write
      await api.files.writeFile(`${path}/b.txt`, String(Math.random()), S);
      try { await idleOnce({ idle }); return true; } catch { return false; }
    }, 'the watch is released');
    await rejects(api.watch.watch({ path: `${dir}/nope` }), 'FILE_NOT_FOUND');
    await rejects(api.watch.watch({ path, include: ['a'], exclude: ['b'] }), 'VALIDATION_FAILED');
  },
  async 'watch.checkChanges'({ api }) {
    const path = `${dir}/checked`;
    await api.files.mkdir(path, S);
    const first = stamped(await api.watch.checkChanges({ path, recursive: true }));
    assert.equal(first.status, 'unchanged');
    await api.files.writeFile(`${path}/x`, '1', S);
    await until(async () => (await api.watch.checkChanges({ path, recursive: true, since: first.version })).status === 'changed', 'changed');
    const resync = await api.watch.checkChanges({ path, recursive: true, since: 'watch-0-0:1' });
    assert.equal(resync.status, 'resync');
    assert.equal(resync.reason, 'restarted');
  },

  // ---------------------------------------------------------------- interpreter
  async 'interpreter contexts'({ api }) {
    const context = await api.interpreter.createCodeContext({ language: 'javascript', cwd: dir, envVars: { K: 'v' }, timeout: 60000 });
    assert.ok(context.createdAt instanceof Date && context.lastUsed instanceof Date);
    assert.ok(Math.abs(context.createdAt - Date.now()) < 600000);
    assert.deepEqual(Object.keys(context).sort(), ['createdAt', 'cwd', 'id', 'language', 'lastUsed']);
    assert.equal(context.language, 'javascript');
    const list = await api.interpreter.listCodeContexts();
    const same = list.find((c) => c.id === context.id);
    assert.deepEqual(same.createdAt, context.createdAt);
    assert.equal(await api.interpreter.deleteCodeContext(context.id), undefined);
    assert.ok(!(await api.interpreter.listCodeContexts()).some((c) => c.id === context.id));
    const error = await rejects(api.interpreter.deleteCodeContext(context.id), 'CONTEXT_NOT_FOUND');
    assert.equal(error.details.contextId, context.id);
    await rejects(api.interpreter.createCodeContext({ language: 'cobol' }), 'VALIDATION_FAILED');
  },
  async 'interpreter.streamCode'({ api }) {
    const { id } = await api.interpreter.createCodeContext({ language: 'javascript' });
    const got = events(await text(await api.interpreter.streamCode(id, 'console.log("hi"); [1, [2]]', 'javascript')));
    assert.deepEqual(got.map((e) => e.data.type), ['stdout', 'result', 'execution_complete']);
    assert.deepEqual(got[1].data.json, [1, [2]]);
    assert.equal(got[0].name, undefined);
    const error = await rejects(api.interpreter.streamCode('nobody', '1', undefined), 'CONTEXT_NOT_FOUND');
    assert.equal(error.details.contextId, 'nobody');
    await api.interpreter.deleteCodeContext(id);
  },
  async 'interpreter.runCodeStream'({ api, idle }) {
    const { id } = await api.interpreter.createCodeContext({ language: 'javascript' });
    const calls = [];
    let inside = 0;
    const take = (name) => async (value) => {
      assert.equal(++inside, 1, 'one callback at a time');
      await new Promise((r) => setTimeout(r, 5));
      inside--;
      calls.push([name, value]);
    };
    const callbacks = { onStdout: take('o'), onStderr: take('e'), onResult: take('r'), onError: take('x') };
    assert.equal(await api.interpreter.runCodeStream(id, 'console.log(1); console.error(2); ({a: [1, [2]], b: []})', 'javascript', callbacks, 60000), undefined);
    assert.deepEqual(calls.map(([n]) => n), ['o', 'e', 'r']);
    assert.equal(calls[0][1].text, '1\n');
    assert.equal(typeof calls[0][1].timestamp, 'number');
    assert.deepEqual(calls[2][1].json, { a: [1, [2]], b: [] });
    assert.ok(!('type' in calls[2][1]) && !('metadata' in calls[2][1]));
    await idle(); // the callbacks are released
    calls.length = 0;
    await api.interpreter.runCodeStream(id, 'throw new RangeError("far")', undefined, callbacks);
    const error = calls.find(([n]) => n === 'x')[1];
    assert.equal(error.name, 'RangeError');
    assert.equal(error.message, 'far');
    assert.ok(Array.isArray(error.traceback) && error.traceback.every((l) => typeof l === 'string'));
    await api.interpreter.runCodeStream(id, 'console.log(3)', undefined, { onResult() {} }); // nobody wants the output
    await assert.rejects(async () => api.interpreter.runCodeStream(id, "console.log(4)", undefined, { onStdout() { throw new Error("from the callback"); } }), /from the callback/);
    await rejects(api.interpreter.runCodeStream('nobody', '1', undefined, callbacks), 'CONTEXT_NOT_FOUND');
    await idle();
    await api.interpreter.deleteCodeContext(id);
  },

  // ---------------------------------------------------------------- the protocol
  async 'unknown methods'({ api }) {
    const error = await rejects(api.files.nope('/x'), undefined, 'TypeError');
    assert.equal(error.message, "'files.nope' is not a function.");
    await rejects(api.nope(), undefined, 'TypeError');
    await rejects(api.utils.ping.pong(), undefined, 'TypeError');
  },
  async 'pipelining'({ api, idle }) {
    const path = `${dir}/pipe.txt`;
    await api.files.writeFile(path, 'passed on', S);
    {
      const read = api.files.readFile(path, S); // not awaited: its content goes into the next call
      const write = api.files.writeFile(`${dir}/copy.txt`, read.content, S);
      assert.equal((await write).bytesWritten, 9);
      assert.equal(await read.size, 9);
      read[Symbol.dispose]();
    }
    assert.equal((await api.files.readFile(`${dir}/copy.txt`, S)).content, 'passed on');
    {
      const list = api.files.listFiles(dir, S);
      assert.equal(typeof await list.files[0].name, 'string');
      assert.equal(await list.files[100000], undefined);
      assert.equal(await list.nothing.below.it, undefined);
      list[Symbol.dispose]();
    }
    const failing = api.files.readFile(`${dir}/nope`, S);
    await rejects(api.files.writeFile(path, failing.content, S), 'FILE_NOT_FOUND');
    await failing.catch(() => {});
    failing[Symbol.dispose]();
    await idle();
  },
  async 'parts of the API as values'({ api, idle }) {
    const files = await api.files;
    assert.equal((await files.exists('/', S)).exists, true);
    const ping = await api.utils.ping;
    assert.equal(await ping(), 'healthy');
    assert.equal(await api.nothing, undefined);
    files[Symbol.dispose]();
    ping[Symbol.dispose]();
    await idle();
  },
  async 'calls overlap'({ api }) {
    const fifo = `${dir}/gate`;
    await api.commands.execute(`mkfifo ${fifo}`, NONE);
    const slow = api.commands.execute(`cat ${fifo}`, S + '-overlap');
    assert.equal(await api.utils.ping(), 'healthy');
    await api.commands.execute(`echo go > ${fifo}`, NONE);
    assert.equal((await slow).stdout.trim(), 'go');
    const many = await Promise.all(Array.from({ length: 3000 }, () => api.utils.ping()));
    assert.ok(many.every((m) => m === 'healthy'));
  },
  async 'ten thousand calls leave nothing'({ api, idle, stats }) {
    for (let round = 0; round < 100; round++) {
      const calls = [];
      for (let i = 0; i < 97; i++) calls.push(api.utils.ping());
      calls.push(api.files.exists(`${dir}/x`, NONE));
      calls.push(api.files.readFile(`${dir}/nope`, NONE).catch((e) => e.code));
      calls.push(api.commands.executeStream('echo', NONE).then(text));
      await Promise.all(calls);
    }
    await idle();
    assert.deepEqual(stats(), { imports: 1, exports: 1 });
  },
  async 'bad messages end the session'({ socket, wire, api }) {
    await api.utils.ping();
    wire.record = true;
    socket.send('["nonsense",1]');
    await assert.rejects(async () => api.utils.ping());
    await until(() => wire.close, 'closed');
    assert.equal(wire.close.code, 3000);
    assert.match(wire.close.reason, /^bad RPC message: \["nonsense",1\]/);
    assert.deepEqual(JSON.parse(wire.received.at(-1)), ['abort', ['error', 'Error', 'bad RPC message: ["nonsense",1]']]);
  },
};

async function idleOnce({ idle }) { return Promise.race([idle(), new Promise((_, no) => setTimeout(no, 200))]); }

process.on('unhandledRejection', () => {});
for (const [check, run] of Object.entries(checks)) {
  if (wanted.length && !wanted.includes(check)) continue;
  const connection = connect(url, new (class extends RpcTarget {})(), headers);
  let error = null;
  try {
    await run(connection);
  } catch (e) {
    error = String(e?.stack ?? e).slice(0, 2000);
  }
  connection.close();
  console.log(JSON.stringify({ check, ok: !error, error }));
}
process.exit(0);
