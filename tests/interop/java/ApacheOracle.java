import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Answers questions about Apache Kafka's own codec and tools, one JVM for a whole test run.
 *
 * A question on stdin is an operation byte, a count and that many byte strings, each with its
 * length in front. An answer on stdout is a status byte (0 answered, 1 Apache refused) and byte
 * strings in the same form. Integers are four bytes, big endian.
 */
public final class ApacheOracle {
    private static final byte READ = 'R';
    private static final byte WRITE = 'W';
    private static final byte VERSIONS = 'V';
    private static final byte READ_BATCHES = 'B';
    private static final byte BUILD_BATCH = 'M';
    private static final byte RUN = 'X';

    private static final String[] MESSAGE_PACKAGES = {
        "org.apache.kafka.common.message.",
        "org.apache.kafka.common.metadata.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.coordinator.share.generated.",
        "org.apache.kafka.raft.generated.",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.",
    };

    private final ObjectMapper json = new ObjectMapper();
    private final Map<String, MessageKind> kinds = new HashMap<>();

    /** One generated message class and its converter. */
    private record MessageKind(Class<?> type, Method toJson, Method fromJson) {
        Message empty() throws ReflectiveOperationException {
            return (Message) type.getDeclaredConstructor().newInstance();
        }
    }

    public static void main(String[] args) throws IOException {
        DataInputStream questions = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        DataOutputStream answers = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
        // Tools print to System.out; the answers must not be mixed with that.
        System.setOut(new PrintStream(new ByteArrayOutputStream(), true, StandardCharsets.UTF_8));
        ToolRunner.forbidExits();
        new ApacheOracle().serve(questions, answers);
    }

    private void serve(DataInputStream questions, DataOutputStream answers) throws IOException {
        while (true) {
            byte operation;
            try {
                operation = questions.readByte();
            } catch (EOFException end) {
                return;
            }
            List<byte[]> parts = readParts(questions);
            byte status = 0;
            List<byte[]> reply;
            try {
                reply = answer(operation, parts);
            } catch (Throwable refusal) {
                status = 1;
                Throwable cause = refusal instanceof InvocationTargetException ? refusal.getCause() : refusal;
                reply = List.of(text(cause.getClass().getName()), text(String.valueOf(cause.getMessage())));
            }
            answers.writeByte(status);
            writeParts(answers, reply);
            answers.flush();
        }
    }

    private List<byte[]> answer(byte operation, List<byte[]> parts) throws Exception {
        switch (operation) {
            case READ:
                return read(string(parts.get(0)), version(parts.get(1)), parts.get(2));
            case WRITE:
                return write(string(parts.get(0)), version(parts.get(1)), parts.get(2));
            case VERSIONS:
                Message empty = kind(string(parts.get(0))).empty();
                return List.of(
                    text(Short.toString(empty.lowestSupportedVersion())),
                    text(Short.toString(empty.highestSupportedVersion())));
            case READ_BATCHES:
                return List.of(RecordsOracle.read(json, parts.get(0)));
            case BUILD_BATCH:
                return List.of(RecordsOracle.build(json, parts.get(0)));
            case RUN:
                List<String> arguments = new ArrayList<>();
                for (byte[] part : parts.subList(3, parts.size())) {
                    arguments.add(string(part));
                }
                long limitMs = Long.parseLong(string(parts.get(2)));
                return ToolRunner.run(string(parts.get(0)), parts.get(1), limitMs, arguments.toArray(new String[0]));
            default:
                throw new IllegalArgumentException("unknown operation " + operation);
        }
    }

    /** Bytes to: the JSON view, the bytes Apache writes for the same object, the bytes left unread. */
    private List<byte[]> read(String name, short version, byte[] content) throws Exception {
        MessageKind kind = kind(name);
        Message message = kind.empty();
        ByteBuffer buffer = ByteBuffer.wrap(content);
        message.read(new ByteBufferAccessor(buffer), version);
        int unread = buffer.remaining();
        byte[] rewritten = bytesOf(message, version);
        JsonNode view = (JsonNode) kind.toJson.invoke(null, message, version, false);
        return List.of(json.writeValueAsBytes(view), rewritten, text(Integer.toString(unread)));
    }

    /** JSON to bytes. */
    private List<byte[]> write(String name, short version, byte[] view) throws Exception {
        MessageKind kind = kind(name);
        Message message = (Message) kind.fromJson.invoke(null, json.readTree(view), version);
        return List.of(bytesOf(message, version));
    }

    private static byte[] bytesOf(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException("the announced size was not written");
        }
        return buffer.array();
    }

    private MessageKind kind(String name) throws ReflectiveOperationException {
        MessageKind known = kinds.get(name);
        if (known != null) {
            return known;
        }
        for (String prefix : MESSAGE_PACKAGES) {
            for (String suffix : new String[] {"Data", ""}) {
                Class<?> type;
                Class<?> converter;
                try {
                    type = Class.forName(prefix + name + suffix);
                    converter = Class.forName(prefix + name + suffix + "JsonConverter");
                } catch (ClassNotFoundException absent) {
                    continue;
                }
                MessageKind found = new MessageKind(
                    type,
                    converter.getMethod("write", type, short.class, boolean.class),
                    converter.getMethod("read", JsonNode.class, short.class));
                kinds.put(name, found);
                return found;
            }
        }
        throw new ClassNotFoundException("Apache Kafka has no message " + name);
    }

    private static short version(byte[] part) {
        return Short.parseShort(string(part));
    }

    private static String string(byte[] part) {
        return new String(part, StandardCharsets.UTF_8);
    }

    private static byte[] text(String value) {
        return value.getBytes(StandardCharsets.UTF_8);
    }

    private static List<byte[]> readParts(DataInputStream in) throws IOException {
        int count = in.readInt();
        List<byte[]> parts = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            byte[] part = new byte[in.readInt()];
            in.readFully(part);
            parts.add(part);
        }
        return parts;
    }

    private static void writeParts(DataOutputStream out, List<byte[]> parts) throws IOException {
        out.writeInt(parts.size());
        for (byte[] part : parts) {
            out.writeInt(part.length);
            out.write(part);
        }
    }
}
