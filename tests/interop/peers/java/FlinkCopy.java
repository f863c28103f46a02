import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** Copies a topic exactly once, from its beginning to where it ends now; fails once on the way. */
public final class FlinkCopy {
    private FlinkCopy() {}

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0];
        Configuration settings = new Configuration();
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "5");
        settings.setString("restart-strategy.fixed-delay.delay", "100 ms");
        settings.setString("execution.checkpointing.interval", "300 ms");
        settings.setString("execution.checkpointing.dir", arguments[3]);
        settings.setString("taskmanager.memory.network.fraction", "0.05");
        KafkaSource<String> source =
                KafkaSource.<String>builder()
                        .setBootstrapServers(servers)
                        .setTopics(arguments[1])
                        .setGroupId("flink-copy")
                        .setStartingOffsets(OffsetsInitializer.earliest())
                        .setBounded(OffsetsInitializer.latest())
                        .setValueOnlyDeserializer(new SimpleStringSchema())
                        .build();
        KafkaSink<String> sink =
                KafkaSink.<String>builder()
                        .setBootstrapServers(servers)
                        .setRecordSerializer(
                                KafkaRecordSerializationSchema.<String>builder()
                                        .setTopic(arguments[2])
                                        .setValueSerializationSchema(new SimpleStringSchema())
                                        .build())
                        .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                        .setTransactionalIdPrefix("flink-copy")
                        .setProperty("transaction.timeout.ms", "60000")
                        .build();
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.createLocalEnvironment(2, settings);
        environment
                .fromSource(source, WatermarkStrategy.noWatermarks(), "source")
                .map(new FailOnce())
                .sinkTo(sink);
        environment.execute("copy");
        System.out.println("DONE");
    }

    /** Fails behind the first checkpoint: what came after it was sent, and is sent again. */
    private static final class FailOnce extends RichMapFunction<String, String>
            implements CheckpointListener {
        private static final long serialVersionUID = 1L;
        private static final int ROWS_BEHIND_A_CHECKPOINT = 50;
        private static final AtomicBoolean HAS_FAILED = new AtomicBoolean();
        private boolean isBehindCheckpoint;
        private int rows;

        @Override
        public String map(String value) throws Exception {
            // Or all would be done before the first checkpoint.
            Thread.sleep(1);
            if (isBehindCheckpoint
                    && ++rows >= ROWS_BEHIND_A_CHECKPOINT
                    && HAS_FAILED.compareAndSet(false, true)) {
                System.out.println("FAILED");
                throw new IllegalStateException("once");
            }
            return value;
        }

        @Override
        public void notifyCheckpointComplete(long checkpoint) {
            isBehindCheckpoint = true;
        }
    }
}
