// SPDX-License-Identifier: Apache-2.0
// check.ts: what a check is: a named function that calls the public client and throws when a result is not the documented one.
import { getSandbox, type ExecutionSession } from '@cloudflare/sandbox';
import type { Sandbox } from './sandbox';

export interface Env {
  Sandbox: DurableObjectNamespace<Sandbox>;
  FILES: R2Bucket;
  BACKUP_BUCKET: R2Bucket;
  SANDBOX_TRANSPORT: 'http' | 'websocket' | 'rpc';
}

type Options = Parameters<typeof getSandbox>[2];
// The object that getSandbox() gives has the terminal, its declared type has not.
export type Box = ReturnType<typeof getSandbox<Sandbox>> & { terminal: ExecutionSession['terminal'] };

export interface Test {
  env: Env;
  transport: Env['SANDBOX_TRANSPORT'];
  host: string; // where previews are to be found, with the port
  box: Box; // shared by the checks of one file
  dir: string; // a directory of this check alone
  other(name: string, options?: Options): Box; // a sandbox of this check alone; the check destroys it
  called: Set<string>;
}

type Check = (t: Test) => Promise<unknown>;
export const checks = new Map<string, Check>();

// area('files') gives the function with which that file declares its checks; names are unique within an area.
export function area(name: string) {
  return (title: string, check: Check) => {
    checks.set(`${name}/${title}`, check);
  };
}

// Notes which methods are called, so that the suite can tell what no check has called.
function recorded<T extends object>(target: T, kind: string, called: Set<string>): T {
  return new Proxy(target, {
    get(object, property) {
      const value = Reflect.get(object, property) as unknown;
      if (typeof property !== 'string' || property === 'then') return value;
      if (property === 'tunnels') return recorded(value as object, 'tunnels', called);
      if (typeof value !== 'function') return value;
      return (...args: unknown[]) => {
        called.add(`${kind}.${property}`);
        const result = (object as any)[property](...args); // not value.apply(): of a stub that is a remote method, too
        if (property !== 'createSession' && property !== 'getSession') return result;
        return Promise.resolve(result).then((session) => recorded(session as object, 'session', called));
      };
    },
  });
}

export async function run(name: string, env: Env, host: string) {
  const check = checks.get(name);
  if (!check) throw new Error(`there is no check '${name}'`);
  const [file, title] = name.split('/');
  const slug = title.replace(/[^a-z0-9]+/gi, '-').replace(/^-|-$/g, '').toLowerCase();
  const called = new Set<string>();
  const open = (id: string, options?: Options) => recorded(getSandbox(env.Sandbox, id, options) as Box, 'sandbox', called);
  const t: Test = {
    env,
    host,
    called,
    transport: env.SANDBOX_TRANSPORT,
    box: open(`${env.SANDBOX_TRANSPORT}-${file}`),
    dir: `/workspace/${slug}`,
    other: (other, options) => open(`${env.SANDBOX_TRANSPORT}-${file}-${other}`, options),
  };
  const started = Date.now();
  try {
    await check(t);
    return { ok: true, ms: Date.now() - started, called: [...called] };
  } catch (e) {
    return { ok: false, error: e instanceof Error ? (e.stack ?? e.message) : String(e), called: [...called] };
  }
}

// ---- statements

export function equal(actual: unknown, expected: unknown, what = 'value') {
  const [a, b] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (a !== b) throw new Error(`${what}: ${a} instead of ${b}`);
}

export function ok(condition: unknown, what: string): asserts condition {
  if (!condition) throw new Error(what);
}

export function includes(text: string | undefined, part: string, what = 'text') {
  ok(text?.includes(part), `${what}: ${JSON.stringify(text?.slice(0, 500))} does not contain ${JSON.stringify(part)}`);
}

// The promise must fail, with this class and this text; gives the error for more.
export async function fails(promise: Promise<unknown>, name: string, text = '') {
  let error: any;
  try {
    await promise;
  } catch (e) {
    error = e;
  }
  ok(error, `no error, but ${name} was expected${text && ` with '${text}'`}`);
  // What crosses from the Durable Object as an exception keeps its name only as the beginning of its text.
  ok(`${error.name} ${error.message} ${error.stack}`.includes(name), `${error.name}: ${error.message} instead of ${name}`);
  includes(error.message, text, 'message');
  return error;
}

// ---- helpers for streams and waiting

export async function text(stream: ReadableStream<Uint8Array>): Promise<string> {
  return new Response(stream).text();
}

// Polls what something else brings about.
export async function until<T>(what: string, condition: () => Promise<T>, seconds = 60): Promise<NonNullable<T>> {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > end) throw new Error(`${what}: did not come true within ${seconds} s`);
    await new Promise((r) => setTimeout(r, 50));
  }
}
