// SPDX-License-Identifier: GPL-2.0

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;

/**
 * A text to a server and back, by sockets that Java opens as TCP's and that become SDP's:
 *
 *   sdpctl run --require -- java Hello.java serve 192.0.2.1 7000       answers one client
 *   sdpctl run --require -- java Hello.java ask 192.0.2.1 7000 TEXT    prints what the server answers
 *
 * Java cannot name a family or a protocol. `sdpctl steer add --program java` does the same for
 * services.
 */
public class Hello {
    /** Sends a text and ends this half of the stream. */
    static void reply(Socket socket, byte[] text) throws IOException {
        socket.getOutputStream().write(text);
        socket.shutdownOutput();
    }

    static void serve(InetAddress address, int port) throws IOException {
        try (ServerSocket listener = new ServerSocket(port, 1, address);
             Socket client = listener.accept()) {
            reply(client, client.getInputStream().readAllBytes());
        }
    }

    static void ask(InetAddress address, int port, String text) throws IOException {
        try (Socket socket = new Socket(address, port)) {
            reply(socket, text.getBytes());
            System.out.println(new String(socket.getInputStream().readAllBytes()));
        }
    }

    public static void main(String[] args) throws IOException {
        if (args.length == 3 && args[0].equals("serve")) {
            serve(InetAddress.getByName(args[1]), Integer.parseInt(args[2]));
        } else if (args.length == 4 && args[0].equals("ask")) {
            ask(InetAddress.getByName(args[1]), Integer.parseInt(args[2]), args[3]);
        } else {
            System.err.println("usage: Hello serve ADDRESS PORT | Hello ask ADDRESS PORT TEXT");
            System.exit(2);
        }
    }
}
