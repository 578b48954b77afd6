// SPDX-License-Identifier: Apache-2.0
// A WebSocket server of the npm package `ws`: one short answer per message. Prints its port.
const { WebSocketServer } = require('ws');

const server = new WebSocketServer({ host: '127.0.0.1', port: 0, perMessageDeflate: true, maxPayload: 1 << 27 });
server.on('listening', () => console.log(server.address().port));
server.on('connection', (socket) => {
  socket.on('error', () => {}); // the close code is what the test looks at
  socket.on('message', () => socket.send('{"type":"error"}'));
});
process.stdin.on('end', () => process.exit(0)).resume();
