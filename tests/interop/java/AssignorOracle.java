import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Shares out partitions as Kafka's assignors do. Each line of the input is
 * assignor|topic:racks;racks/…|member,instance,rack,generation,topic+topic,topic-0+topic-1,user data/…
 * and for each one line is printed: "shares member=topic-0,topic-1 …".
 */
public final class AssignorOracle {
    private AssignorOracle() { }

    public static void main(String[] arguments) throws IOException {
        BufferedReader questions = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            System.out.println("shares " + answer(line.split("\\|", -1)));
        }
    }

    private static String answer(String[] question) {
        Map<String, Assignment> shares = assignor(question[0])
            .assign(cluster(question[1]), new GroupSubscription(members(question[2])))
            .groupAssignment();
        List<String> texts = new ArrayList<>();
        for (Map.Entry<String, Assignment> share : new TreeMap<>(shares).entrySet()) {
            List<String> partitions = new ArrayList<>();
            for (TopicPartition partition : share.getValue().partitions()) {
                partitions.add(partition.toString());
            }
            Collections.sort(partitions);
            texts.add(share.getKey() + "=" + String.join(",", partitions));
        }
        return String.join(" ", texts);
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        switch (name) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            default: return new CooperativeStickyAssignor();
        }
    }

    private static Cluster cluster(String text) {
        Map<String, Node> nodes = new HashMap<>();
        List<PartitionInfo> partitions = new ArrayList<>();
        for (String topic : text.split("/")) {
            String[] parts = topic.split(":", -1);
            int number = 0;
            for (String racks : parts[1].split(";", -1)) {
                List<Node> replicas = new ArrayList<>();
                for (String rack : racks.split(",", -1)) {
                    int id = nodes.size();
                    replicas.add(nodes.computeIfAbsent(
                        rack, name -> new Node(id, "host", 1, name.isEmpty() ? null : name)));
                }
                Node[] all = replicas.toArray(new Node[0]);
                partitions.add(new PartitionInfo(parts[0], number++, all[0], all, all));
            }
        }
        return new Cluster("cluster", nodes.values(), partitions, Set.of(), Set.of());
    }

    private static Map<String, Subscription> members(String text) {
        Map<String, Subscription> members = new HashMap<>();
        for (String member : text.split("/")) {
            String[] parts = member.split(",", -1);
            List<TopicPartition> owned = new ArrayList<>();
            for (String partition : filled(parts[5])) {
                int dash = partition.lastIndexOf('-');
                owned.add(new TopicPartition(
                    partition.substring(0, dash), Integer.parseInt(partition.substring(dash + 1))));
            }
            ByteBuffer userData = parts[6].isEmpty()
                ? null : ByteBuffer.wrap(HexFormat.of().parseHex(parts[6]));
            Subscription subscription = new Subscription(
                filled(parts[4]), userData, owned, Integer.parseInt(parts[3]), optional(parts[2]));
            subscription.setGroupInstanceId(optional(parts[1]));
            members.put(parts[0], subscription);
        }
        return members;
    }

    private static List<String> filled(String text) {
        return text.isEmpty() ? List.of() : List.of(text.split("\\+"));
    }

    private static Optional<String> optional(String text) {
        return text.isEmpty() ? Optional.empty() : Optional.of(text);
    }
}
