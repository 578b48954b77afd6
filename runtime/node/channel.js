// SPDX-License-Identifier: Apache-2.0
// channel.js: the private line between one context and the agent; see runtime/python/silica_runtime/channel.py for the
// form of the messages. Here it is a stream socket, which Node can read: a piece still begins and ends with a newline,
// so that what others write to the descriptor is skipped by the agent, line by line.
'use strict';

const fs = require('fs');
const net = require('net');

const PIECE_MAX = 32 * 1024;
const { stringify, parse } = JSON;
const { writeSync } = fs;
const { wait } = Atomics;
const idle = new Int32Array(new SharedArrayBuffer(4));

// Writes all of it. The descriptor may have been made non-blocking, by us or by a child that shares it: then wait a moment.
function writeAll(fd, bytes) {
  for (let at = 0; at < bytes.length; ) {
    try {
      at += writeSync(fd, bytes, at, bytes.length - at);
    } catch (e) {
      if (e.code !== 'EAGAIN' && e.code !== 'EINTR') throw e;
      if (e.code === 'EAGAIN') wait(idle, 0, 0, 1);
    }
  }
}

// JSON in pure ASCII. A lone surrogate, which stringify writes as an escape, becomes U+FFFD: the agent wants well-formed text.
function encode(value) {
  let text = stringify(value);
  if (text.includes('\\ud')) {
    text = text.replace(/\\(?:u[0-9a-f]{4}|[^u])/g, (escape) => (/^\\ud[89a-f]/.test(escape) ? '\\ufffd' : escape));
  }
  return text.replace(/[\x7f-\uffff]/g, (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));
}

class Channel {
  #fd;
  #nonce = '';
  #rest = '';

  constructor(fd, onRequest, onEnd) {
    this.#fd = fd;
    const socket = new net.Socket({ fd, readable: true, writable: false });
    socket.setEncoding('utf8');
    socket.on('data', (piece) => {
      try {
        const lines = (this.#rest + piece).split('\n');
        this.#rest = lines.pop();
        for (const line of lines) onRequest(parse(line));
      } catch {
        onEnd(); // user code has taken away what this needs: better no process than a deaf one
      }
    });
    socket.on('end', onEnd);
    socket.on('error', onEnd);
  }

  set nonce(value) {
    this.#nonce = value;
  }

  send(kind, run, value) {
    const message = `${kind}${run} ${encode(value)}`;
    for (let at = 0; at < message.length; at += PIECE_MAX) {
      const last = at + PIECE_MAX >= message.length;
      const mark = at === 0 ? (last ? '=' : '<') : last ? '>' : '+';
      writeAll(this.#fd, Buffer.from(`\n${this.#nonce}${mark}${message.slice(at, at + PIECE_MAX)}\n`, 'latin1'));
    }
  }
}

module.exports = { Channel, writeAll };
