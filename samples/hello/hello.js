// SPDX-License-Identifier: GPL-2.0
/*
 * A text to a server and back, by sockets that Node opens as TCP's and that become SDP's:
 *
 *   sdpctl run --require -- node hello.js serve 192.0.2.1 7000       answers one client
 *   sdpctl run --require -- node hello.js ask 192.0.2.1 7000 TEXT    prints what the server answers
 *
 * Node cannot name a family or a protocol. `sdpctl steer add --program node` does the same for
 * services. The sockets are in the event loop's epoll.
 */
'use strict';
const net = require('node:net');

// Calls back with all that the peer sends until it ends its half of the stream.
function receive(socket, done) {
	const chunks = [];

	socket.on('data', (chunk) => chunks.push(chunk));
	socket.on('end', () => done(Buffer.concat(chunks)));
}

function serve(host, port) {
	// Otherwise Node ends its half as soon as the peer has ended the other one.
	const server = net.createServer({ allowHalfOpen: true }, (socket) => {
		server.close();
		receive(socket, (text) => socket.end(text));
	});

	server.listen(port, host);
}

function ask(host, port, text) {
	const socket = net.connect({ host, port, allowHalfOpen: true }, () => socket.end(text));

	receive(socket, (answer) => console.log(answer.toString()));
}

const [role, host, port, text] = process.argv.slice(2);

if (role === 'serve' && port !== undefined) {
	serve(host, Number(port));
} else if (role === 'ask' && text !== undefined) {
	ask(host, Number(port), text);
} else {
	console.error('usage: hello.js serve ADDRESS PORT | hello.js ask ADDRESS PORT TEXT');
	process.exitCode = 2;
}
