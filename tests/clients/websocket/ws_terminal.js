// SPDX-License-Identifier: Apache-2.0
// A terminal's server made with the npm package `ws`, for our own client: sends pieces, pings and everything that
// is allowed, echoes keys in capitals, and ends with exit code 42 at Ctrl-D. Prints its port.
const { WebSocketServer } = require('ws');

const server = new WebSocketServer({ host: '127.0.0.1', port: 0 });
server.on('listening', () => console.log(server.address().port));
server.on('connection', (socket) => {
  socket.on('error', (e) => console.log('error ' + e.message));
  const waiting = new Set(['pong', 'end']); // for the exit
  function met(what) {
    waiting.delete(what);
    if (waiting.size) return;
    socket.send('{"type":"exit","code":42}');
    socket.close(1000);
  }
  socket.on('pong', () => {
    socket.send(Buffer.from('<pong>'));
    met('pong');
  });
  socket.send(Buffer.from('replay:'), { fin: false });
  socket.ping('inside');
  socket.send(Buffer.alloc(100000, '.'), { fin: true });
  socket.send('{"type":"ready"}');
  socket.send('{"type":"something new"}');
  socket.on('message', (data, binary) => {
    if (!binary) return socket.send(Buffer.from('<' + JSON.parse(data).type + '>'));
    socket.send(Buffer.from(data.toString().toUpperCase()));
    if (data.includes(4)) met('end');
  });
});
process.stdin.on('end', () => process.exit(0)).resume();
