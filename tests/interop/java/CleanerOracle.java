import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Runs Apache Kafka's cleaner over partition directories. Each argument is a folder with a partition
 * `t-0` and a file `passes.txt`: the topic's settings on its first line (name=value, separated by
 * blanks), then one line per pass: bytes for the map, first uncleanable offset, time. Writes
 * `ends.txt`: up to where each pass came.
 */
public class CleanerOracle {
    private static final int DAY_MS = 86_400_000;

    public static void main(String[] arguments) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        try {
            for (String folder : arguments) {
                clean(Path.of(folder), scheduler);
            }
        } finally {
            scheduler.shutdown();
        }
    }

    private static void clean(Path folder, KafkaScheduler scheduler) throws Exception {
        List<String> lines = Files.readAllLines(folder.resolve("passes.txt"));
        UnifiedLog log = open(folder.resolve("t-0").toFile(), lines.get(0), scheduler);
        log.updateHighWatermark(log.logEndOffset());
        List<String> ends = new ArrayList<>();
        long firstDirty = 0;
        for (String line : lines.subList(1, lines.size())) {
            long[] pass = Arrays.stream(line.split(" ")).mapToLong(Long::parseLong).toArray();
            LogToClean toClean = new LogToClean(log, firstDirty, pass[1], true);
            firstDirty = cleaner((int) pass[0]).doClean(toClean, pass[2]).getKey();
            ends.add(Long.toString(firstDirty));
        }
        Files.write(folder.resolve("ends.txt"), ends);
        log.close();
    }

    private static Cleaner cleaner(int mapBytes) throws Exception {
        Throttler unlimited =
            new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "cleaner-oracle", "bytes", Time.SYSTEM);
        return new Cleaner(
            0, new SkimpyOffsetMap(mapBytes), 1 << 16, 1 << 20, 0.9, unlimited, Time.SYSTEM, partition -> { });
    }

    private static UnifiedLog open(File partition, String settings, KafkaScheduler scheduler)
            throws IOException {
        Properties properties = new Properties();
        for (String setting : settings.split(" ")) {
            String[] parts = setting.split("=", 2);
            properties.put(parts[0], parts[1]);
        }
        return UnifiedLog.create(
            partition,
            new LogConfig(properties),
            0L,
            0L,
            scheduler,
            new BrokerTopicStats(),
            Time.SYSTEM,
            DAY_MS,
            new ProducerStateManagerConfig(DAY_MS, false),
            DAY_MS,
            new LogDirFailureChannel(1),
            true,
            Optional.empty());
    }
}
