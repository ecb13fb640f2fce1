// One end of an ACSE association, on josistack, for tests (scripts/josistack/run). Values are octet strings.

import java.io.EOFException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HexFormat;
import javax.net.ServerSocketFactory;
import org.openmuc.josistack.AcseAssociation;
import org.openmuc.josistack.AcseAssociationListener;
import org.openmuc.josistack.ClientAcseSap;
import org.openmuc.josistack.ServerAcseSap;

final class Peer {
    /** The application context of MMS; josistack proposes only the presentation contexts of MMS. */
    private static final String APPLICATION = "1.0.9506.2.3";
    private static final int BYTES_MAX = 100_000;
    private static final int PATIENCE_MS = 20_000;
    private static final int ANY_PORT = 1;

    public static void main(String[] words) throws Exception {
        System.out.println("here");
        if (words[0].equals("server")) {
            server();
        } else {
            HexFormat hex = HexFormat.of();
            int port = Integer.parseInt(words[1]);
            for (int at = 2; at + 2 < words.length; at += 3) {
                client(port, Integer.parseInt(words[at]), hex.parseHex(words[at + 1]), hex.parseHex(words[at + 2]));
            }
        }
    }

    private static void client(int port, int code, byte[] calling, byte[] called) throws Exception {
        ClientAcseSap sap = new ClientAcseSap();
        sap.tSap.tSelLocal = calling;
        sap.tSap.tSelRemote = called;
        sap.tSap.setMaxTPDUSizeParam(code);
        sap.tSap.setMessageTimeout(PATIENCE_MS);
        sap.tSap.setMessageFragmentTimeout(PATIENCE_MS);
        InetAddress loopback = InetAddress.getLoopbackAddress();
        AcseAssociation association =
            sap.associate(loopback, port, null, 0, APPLICATION, ByteBuffer.wrap(octets(5)));
        System.out.println("associated");
        for (int count : new int[] {0, 1, 100, 127, 128, 3_000, 65_000}) {
            byte[] value = octets(count);
            association.send(ByteBuffer.wrap(value));
            if (!Arrays.equals(value, receive(association))) {
                throw new IOException("an echo of " + count + " octets is not the same");
            }
            System.out.println("echoed " + count);
        }
        association.disconnect();
        System.out.println("disconnected");
    }

    private static void server() throws Exception {
        AcseAssociationListener listener = new AcseAssociationListener() {
            @Override
            public void connectionIndication(AcseAssociation association, ByteBuffer asked) {
                System.out.println("asked with " + asked.remaining());
                try {
                    association.accept(ByteBuffer.wrap(octets(7)));
                    association.setMessageTimeout(PATIENCE_MS);
                    while (true) {
                        byte[] value = receive(association);
                        association.send(ByteBuffer.wrap(value));
                        System.out.println("echoed " + value.length);
                    }
                } catch (EOFException ended) {
                    System.out.println("ended");
                    association.close();
                } catch (Exception failed) {
                    System.out.println("failed: " + failed);
                    association.disconnect();
                }
            }

            @Override
            public void serverStoppedListeningIndication(IOException failed) {}
        };
        ServerAcseSap sap = new ServerAcseSap(ANY_PORT, 8, InetAddress.getLoopbackAddress(), listener, new Free());
        sap.serverTSap.setMessageTimeout(PATIENCE_MS);
        sap.serverTSap.setMessageFragmentTimeout(PATIENCE_MS);
        sap.startListening();
        while (System.in.read() >= 0) {}
        System.exit(0);
    }

    private static byte[] receive(AcseAssociation association) throws Exception {
        ByteBuffer buffer = ByteBuffer.allocate(BYTES_MAX);
        association.receive(buffer);
        byte[] value = new byte[buffer.remaining()];
        buffer.get(value);
        return value;
    }

    /** Returns the BER encoding of an OCTET STRING of `count` octets. */
    private static byte[] octets(int count) {
        byte[] length = count < 128 ? new byte[] {(byte) count}
            : new byte[] {(byte) 0x83, (byte) (count >> 16), (byte) (count >> 8), (byte) count};
        byte[] value = new byte[1 + length.length + count];
        value[0] = 4;
        System.arraycopy(length, 0, value, 1, length.length);
        for (int at = 0; at < count; at++) {
            value[1 + length.length + at] = (byte) (at * 7);
        }
        return value;
    }

    /** Creates a server socket on a free port, and prints the port: josistack itself does not accept port 0. */
    private static final class Free extends ServerSocketFactory {
        @Override
        public ServerSocket createServerSocket(int port, int backlog, InetAddress address) throws IOException {
            ServerSocket socket = new ServerSocket(0, backlog, address);
            System.out.println("listening at " + socket.getLocalPort());
            return socket;
        }

        @Override
        public ServerSocket createServerSocket(int port, int backlog) throws IOException {
            return createServerSocket(port, backlog, null);
        }

        @Override
        public ServerSocket createServerSocket(int port) throws IOException {
            return createServerSocket(port, 0, null);
        }
    }
}
