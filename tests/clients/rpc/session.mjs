// SPDX-License-Identifier: Apache-2.0
// One capnweb session over the package `ws`, with a look at its tables and at what went over the wire.
import { RpcSession, RpcTarget } from 'capnweb';
import WebSocket from 'ws';

export function connect(url, main, headers = {}) {
  const socket = new WebSocket(url, { headers, perMessageDeflate: false, maxPayload: 1 << 30 });
  const queue = [], waiting = [], unsent = [];
  const wire = { sent: [], received: [], record: false, close: null };
  let failure;
  const fail = (error) => {
    failure ??= error;
    for (const w of waiting.splice(0)) w.reject(failure);
  };
  socket.on('open', () => { for (const m of unsent.splice(0)) socket.send(m); });
  socket.on('message', (data, binary) => {
    if (binary) return fail(new TypeError('a binary frame'));
    const text = data.toString();
    if (wire.record) wire.received.push(text);
    if (waiting.length) waiting.shift().resolve(text);
    else queue.push(text);
  });
  socket.on('close', (code, reason) => {
    wire.close = { code, reason: reason.toString() };
    fail(new Error(`Peer closed WebSocket: ${code} ${reason}`));
  });
  socket.on('error', fail);
  const transport = {
    async send(message) {
      if (wire.record) wire.sent.push(message);
      if (socket.readyState === WebSocket.CONNECTING) unsent.push(message);
      else socket.send(message);
    },
    receive() {
      if (queue.length) return Promise.resolve(queue.shift());
      if (failure) return Promise.reject(failure);
      return new Promise((resolve, reject) => waiting.push({ resolve, reject }));
    },
    abort(reason) { socket.close(3000, String(reason?.message ?? reason).slice(0, 100)); },
  };
  const session = new RpcSession(transport, main);
  const api = session.getRemoteMain();
  const idle = async () => { // until only the two main objects are left
    for (let i = 0; i < 6000; i++) {
      const { imports, exports } = session.getStats();
      if (imports <= 1 && exports <= 1) return;
      await new Promise((r) => setTimeout(r, 10));
    }
    throw new Error('not idle: ' + JSON.stringify(session.getStats()));
  };
  return { api, session, socket, wire, idle, stats: () => session.getStats(), close: () => socket.terminate() };
}

export async function bytes(stream) {
  const parts = [];
  for await (const part of stream) parts.push(Buffer.from(part));
  return Buffer.concat(parts);
}

export async function text(stream) { return (await bytes(stream)).toString(); }

// The events of a stream, with the names that were on lines of their own.
export function events(sse) {
  return sse.split('\n\n').filter(Boolean).map((block) => {
    const event = {};
    for (const line of block.split('\n')) {
      if (line.startsWith('event: ')) event.name = line.slice(7);
      if (line.startsWith('data: ')) event.data = JSON.parse(line.slice(6));
    }
    return event;
  });
}

export { RpcTarget };
