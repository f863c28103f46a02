import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Transactions by the Java client: commits, aborts, offsets, fencing, timeouts. Prints one line per
 * step, as AdminCalls does. Uses only what the clients of 3.7 have too, so that it runs with them.
 *
 * Arguments: bootstrap server, a prefix for names.
 */
public final class TransactionCalls {
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    private static final int MANY = 40;
    private final Admin admin;
    private final String server;
    private final String prefix;
    private final String topic;
    private final TopicPartition first;

    private TransactionCalls(Admin admin, String server, String prefix) {
        this.admin = admin;
        this.server = server;
        this.prefix = prefix;
        this.topic = prefix + "-topic";
        this.first = new TopicPartition(topic, 0);
    }

    public static void main(String[] args) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0], "default.api.timeout.ms", "30000"))) {
            TransactionCalls calls = new TransactionCalls(admin, args[0], args[1]);
            calls.commitsAndAborts();
            calls.manyPartitions();
            calls.offsets();
            calls.membership();
            calls.fencing();
            calls.timeouts();
            calls.administration();
        }
    }

    private void say(String name, Callable<Object> call) {
        Object answer;
        try {
            answer = call.call();
        } catch (ExecutionException failed) {
            answer = "!" + failed.getCause().getClass().getSimpleName();
        } catch (Exception failed) {
            Throwable cause = failed.getCause();
            answer = "!" + failed.getClass().getSimpleName()
                + (cause == null ? "" : " by " + cause.getClass().getSimpleName());
        }
        System.out.println(name + ": " + answer);
    }

    private void step(String name, Runnable call) {
        say(name, () -> {
            call.run();
            return "done";
        });
    }

    private void create(String name, int partitions) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
    }

    private KafkaProducer<byte[], byte[]> producer(String id, String... settings) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", server,
            "transactional.id", prefix + "-" + id, "max.block.ms", "30000"));
        for (int i = 0; i < settings.length; i += 2)
            config.put(settings[i], settings[i + 1]);
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private KafkaConsumer<byte[], byte[]> consumer(String isolation, String... settings) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", server, "isolation.level", isolation,
            "auto.offset.reset", "earliest", "enable.auto.commit", "false", "fetch.max.wait.ms", "50"));
        for (int i = 0; i < settings.length; i += 2)
            config.put(settings[i], settings[i + 1]);
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private void send(KafkaProducer<byte[], byte[]> producer, String name, int partition, String... values) {
        for (String value : values)
            producer.send(new ProducerRecord<>(name, partition, null, bytes(value)));
    }

    /** Everything of a topic up to where a reader of this kind may go now. */
    private List<String> read(String isolation, String name) throws Exception {
        List<TopicPartition> partitions = new ArrayList<>();
        int count = admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions().size();
        for (int index = 0; index < count; index++)
            partitions.add(new TopicPartition(name, index));
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(isolation)) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            for (boolean isDone = false; !isDone; ) {
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(50)))
                    values.add(new String(each.value(), StandardCharsets.UTF_8));
                isDone = partitions.stream().allMatch(each -> consumer.position(each, PATIENCE) >= ends.get(each));
            }
        }
        values.sort(null);
        return values;
    }

    private List<String> committed(String name) throws Exception {
        return read("read_committed", name);
    }

    private long end(TopicPartition partition, IsolationLevel isolation) throws Exception {
        return admin.listOffsets(Map.of(partition, OffsetSpec.latest()),
            new org.apache.kafka.clients.admin.ListOffsetsOptions(isolation)).partitionResult(partition).get().offset();
    }

    private TransactionDescription described(String id) throws Exception {
        return admin.describeTransactions(List.of(prefix + "-" + id)).description(prefix + "-" + id).get();
    }

    /** A transaction's end is told when it is decided; its markers follow. */
    private String settled(String id) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE.toMillis();
        while (System.currentTimeMillis() < deadline) {
            String state = described(id).state().toString();
            if (state.startsWith("Complete") || state.equals("Empty"))
                return state;
            Thread.sleep(20);
        }
        return "never";
    }

    private void commitsAndAborts() throws Exception {
        create(topic, 3);
        try (KafkaProducer<byte[], byte[]> producer = producer("writer")) {
            step("begin without init", producer::beginTransaction);
            producer.initTransactions();
            step("commit before begin", producer::commitTransaction);
            producer.beginTransaction();
            for (int partition = 0; partition < 3; partition++)
                send(producer, topic, partition, "committed " + partition);
            step("commit", producer::commitTransaction);
            say("settled", () -> settled("writer"));
            producer.beginTransaction();
            send(producer, topic, 0, "aborted");
            send(producer, topic, 1, "aborted");
            producer.flush();
            step("abort", producer::abortTransaction);
            say("settled", () -> settled("writer"));
            producer.beginTransaction();
            step("commit of nothing", producer::commitTransaction);
            producer.beginTransaction();
            step("abort of nothing", producer::abortTransaction);
            producer.beginTransaction();
            send(producer, topic, 0, "open");
            producer.flush();
            say("read by all", () -> read("read_uncommitted", topic));
            say("read while open", () -> committed(topic));
            say("ends while open", () -> end(first, IsolationLevel.READ_UNCOMMITTED) + " "
                + end(first, IsolationLevel.READ_COMMITTED));
            producer.commitTransaction();
            say("settled", () -> settled("writer"));
            say("read after", () -> committed(topic));
            for (int number = 0; number < 20; number++) {
                producer.beginTransaction();
                send(producer, topic, number % 3, "quick " + (number % 2 == 0 ? "kept" : "lost"));
                if (number % 2 == 0)
                    producer.commitTransaction();
                else
                    producer.abortTransaction();
            }
            settled("writer");
            say("one after the other", () -> committed(topic).stream().filter(each -> each.startsWith("quick")).toList());
            producer.beginTransaction();
            say("too large", () -> producer.send(new ProducerRecord<>(topic, 0, null, new byte[2 << 20])).get());
            step("abort after an error", producer::abortTransaction);
            producer.beginTransaction();
            send(producer, topic, 0, "after an error");
            step("commit after an error", producer::commitTransaction);
        }
    }

    private void manyPartitions() throws Exception {
        String many = prefix + "-many";
        create(many, MANY);
        try (KafkaProducer<byte[], byte[]> producer = producer("many")) {
            producer.initTransactions();
            for (String what : List.of("kept", "lost", "kept too")) {
                producer.beginTransaction();
                for (int partition = 0; partition < MANY; partition++)
                    send(producer, many, partition, what, what);
                producer.flush();
                say("partitions of " + what, () -> described("many").topicPartitions().size());
                if (what.equals("lost"))
                    producer.abortTransaction();
                else
                    producer.commitTransaction();
                say("settled", () -> settled("many"));
            }
        }
        List<String> values = committed(many);
        say("read of many", () -> new TreeSet<>(values) + " " + values.size());
    }

    private void offsets() throws Exception {
        String input = prefix + "-input";
        String output = prefix + "-output";
        String group = prefix + "-transformer";
        create(input, 2);
        create(output, 2);
        try (KafkaProducer<byte[], byte[]> source = producer("source")) {
            source.initTransactions();
            source.beginTransaction();
            for (int number = 0; number < 10; number++)
                send(source, input, number % 2, "r" + number);
            source.commitTransaction();
            settled("source");
        }
        try (KafkaProducer<byte[], byte[]> producer = producer("transformer");
             KafkaConsumer<byte[], byte[]> consumer = consumer("read_committed", "group.id", group)) {
            producer.initTransactions();
            consumer.subscribe(List.of(input));
            for (boolean isKept : List.of(false, true)) {
                Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
                int read = 0;
                producer.beginTransaction();
                while (read < 10) {
                    for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(100))) {
                        read++;
                        String value = new String(each.value(), StandardCharsets.UTF_8) + (isKept ? "'" : "?");
                        send(producer, output, each.partition(), value);
                        positions.put(new TopicPartition(input, each.partition()),
                            new OffsetAndMetadata(each.offset() + 1, isKept ? "kept" : "lost"));
                    }
                }
                producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
                say("offsets in sight before", () -> group(group));
                if (isKept) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                    consumer.seekToBeginning(consumer.assignment());
                }
                say("settled", () -> settled("transformer"));
                say("offsets in sight after", () -> group(group));
                say("transformed", () -> committed(output));
            }
        }
    }

    private List<String> group(String group) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets =
            admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        return offsets.entrySet().stream()
            .map(each -> each.getKey().partition() + "=" + each.getValue().offset() + " " + each.getValue().metadata())
            .sorted().toList();
    }

    @SuppressWarnings("removal")
    private void membership() throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(first, new OffsetAndMetadata(1));
        try (KafkaProducer<byte[], byte[]> producer = producer("member");
             KafkaConsumer<byte[], byte[]> consumer = consumer("read_committed", "group.id", prefix + "-members")) {
            producer.initTransactions();
            consumer.subscribe(List.of(topic));
            while (consumer.assignment().isEmpty())
                consumer.poll(Duration.ofMillis(50));
            ConsumerGroupMetadata present = consumer.groupMetadata();
            for (String who : List.of("stranger", "old generation", "nobody", "member")) {
                ConsumerGroupMetadata claimed = switch (who) {
                    case "stranger" -> new ConsumerGroupMetadata(present.groupId(), present.generationId(), "x",
                        present.groupInstanceId());
                    case "old generation" -> new ConsumerGroupMetadata(present.groupId(), present.generationId() - 1,
                        present.memberId(), present.groupInstanceId());
                    case "nobody" -> new ConsumerGroupMetadata(present.groupId());
                    default -> present;
                };
                producer.beginTransaction();
                step("offsets of " + who, () -> producer.sendOffsetsToTransaction(offsets, claimed));
                step("commit by " + who, producer::commitTransaction);
                say("end by " + who, () -> {
                    producer.abortTransaction();
                    return "aborted";
                });
            }
        }
    }

    private void fencing() throws Exception {
        String name = prefix + "-fenced";
        create(name, 1);
        KafkaProducer<byte[], byte[]> zombie = producer("taken");
        zombie.initTransactions();
        zombie.beginTransaction();
        send(zombie, name, 0, "of the zombie");
        zombie.flush();
        try (KafkaProducer<byte[], byte[]> heir = producer("taken")) {
            step("taken over", heir::initTransactions);
            say("what was open", () -> settled("taken"));
            say("zombie writes", () -> zombie.send(new ProducerRecord<>(name, 0, null, bytes("late"))).get());
            step("zombie commits", zombie::commitTransaction);
            step("zombie aborts", zombie::abortTransaction);
            step("zombie begins", zombie::beginTransaction);
            heir.beginTransaction();
            send(heir, name, 0, "of the heir");
            step("heir commits", heir::commitTransaction);
            settled("taken");
        }
        zombie.close(Duration.ZERO);
        say("read", () -> committed(name));
        KafkaProducer<byte[], byte[]> idle = producer("taken");
        idle.initTransactions();
        try (KafkaProducer<byte[], byte[]> heir = producer("taken")) {
            heir.initTransactions();
            idle.beginTransaction();
            say("idle zombie writes", () -> idle.send(new ProducerRecord<>(name, 0, null, bytes("late"))).get());
            step("idle zombie commits", idle::commitTransaction);
        }
        idle.close(Duration.ZERO);
        say("read again", () -> committed(name));
    }

    private void timeouts() throws Exception {
        String name = prefix + "-slow";
        create(name, 1);
        say("too long a timeout", () -> {
            try (KafkaProducer<byte[], byte[]> producer = producer("patient", "transaction.timeout.ms", "99999999")) {
                producer.initTransactions();
                return "taken";
            }
        });
        KafkaProducer<byte[], byte[]> slow = producer("slow", "transaction.timeout.ms", "300");
        slow.initTransactions();
        slow.beginTransaction();
        send(slow, name, 0, "too late");
        slow.flush();
        say("after its time", () -> settled("slow"));
        say("read", () -> committed(name));
        step("commit after its time", slow::commitTransaction);
        slow.close(Duration.ZERO);
        KafkaProducer<byte[], byte[]> writing = producer("writing", "transaction.timeout.ms", "300");
        writing.initTransactions();
        writing.beginTransaction();
        send(writing, name, 0, "in time");
        writing.flush();
        say("after its time", () -> settled("writing"));
        say("write after its time", () -> writing.send(new ProducerRecord<>(name, 0, null, bytes("late"))).get());
        step("abort after its time", writing::abortTransaction);
        writing.close(Duration.ZERO);
        say("read", () -> committed(name));
    }

    private void administration() throws Exception {
        String name = prefix + "-administered";
        create(name, 1);
        TopicPartition partition = new TopicPartition(name, 0);
        say("unknown id", () -> described("nobody"));
        KafkaProducer<byte[], byte[]> producer = producer("administered", "transaction.timeout.ms", "50000");
        producer.initTransactions();
        TransactionDescription idle = described("administered");
        say("idle", () -> idle.state() + " " + idle.transactionTimeoutMs() + " " + idle.transactionStartTimeMs()
            + " " + idle.topicPartitions() + " " + idle.coordinatorId());
        producer.beginTransaction();
        send(producer, name, 0, "one", "two");
        producer.flush();
        TransactionDescription open = described("administered");
        say("open", () -> open.state() + " " + open.transactionStartTimeMs().isPresent()
            + " " + open.topicPartitions().equals(Set.of(partition)) + " " + (open.producerId() == idle.producerId()));
        say("listed", () -> admin.listTransactions().all().get().stream()
            .filter(each -> each.producerId() == open.producerId())
            .map(each -> each.state() + " " + each.transactionalId().equals(prefix + "-administered")).toList());
        ProducerState state = admin.describeProducers(List.of(partition)).partitionResult(partition).get()
            .activeProducers().get(0);
        say("producer", () -> (state.producerId() == open.producerId()) + " " + (state.producerEpoch() == open.producerEpoch())
            + " " + state.lastSequence() + " " + state.coordinatorEpoch() + " " + state.currentTransactionStartOffset());
        say("abort of one partition", () -> admin.abortTransaction(new AbortTransactionSpec(partition, state.producerId(),
            (short) state.producerEpoch(), 0)).all().get());
        say("fenced", () -> {
            admin.fenceProducers(List.of(prefix + "-administered")).all().get();
            return settled("administered");
        });
        step("commit of the fenced", producer::commitTransaction);
        producer.close(Duration.ZERO);
        say("read", () -> committed(name));
    }
}
