import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

/** Each line of the input is a count of partitions and a key in hex; its partition is printed. */
public final class PartitionOracle {
    private PartitionOracle() { }

    public static void main(String[] arguments) throws IOException {
        BufferedReader questions = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String[] parts = line.split(" ", -1);
            byte[] key = HexFormat.of().parseHex(parts[1]);
            System.out.println(BuiltInPartitioner.partitionForKey(key, Integer.parseInt(parts[0])));
        }
    }
}
