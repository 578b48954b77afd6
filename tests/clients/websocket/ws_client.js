// SPDX-License-Identifier: Apache-2.0
// The npm package `ws` as a client of /ws: node ws_client.js URL. Prints one JSON document of what it saw.
const WebSocket = require('ws');

const seen = { pongs: [], answers: {}, extensions: null, close: null };
const socket = new WebSocket(process.argv[2], { perMessageDeflate: true });

function request(id, body) {
  return JSON.stringify({ type: 'request', id, method: 'POST', path: '/api/execute', body });
}

socket.on('open', () => {
  seen.extensions = socket.extensions;
  socket.ping('first');
  const text = request('pieces', { command: 'echo κόσμε', sessionId: '__DISABLE_SESSION__' });
  const middle = Buffer.from(text).indexOf(Buffer.from('κ')) + 1; // inside a character
  const bytes = Buffer.from(text);
  socket.send(bytes.subarray(0, middle), { fin: false, binary: false });
  socket.ping('between');
  socket.send(bytes.subarray(middle), { fin: true, binary: false });
  for (let n = 0; n < 20; n++) {
    const size = [0, 1, 125, 126, 127, 65535, 65536, 1 << 20][n % 8];
    socket.send(request('size' + n, { command: 'true', padding: 'x'.repeat(size), sessionId: '__DISABLE_SESSION__' }));
  }
});
socket.on('pong', (data) => seen.pongs.push(data.toString()));
socket.on('message', (data) => {
  const message = JSON.parse(data);
  seen.answers[message.id] = { status: message.status, stdout: message.body && message.body.stdout };
  if (Object.keys(seen.answers).length === 21) socket.close(3210, 'done');
});
socket.on('close', (code) => {
  seen.close = code;
  console.log(JSON.stringify(seen));
});
