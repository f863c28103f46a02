import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreatePartitionsOptions;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeProducersOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Calls Apache's admin client for what no command line tool shows, and prints one line per call: what
 * came back without what differs from run to run, or the kind of the error after `!`.
 *
 * Arguments: bootstrap server, a prefix for names, the node's log directory.
 */
public final class AdminCalls {
    private final Admin admin;
    private final String server;
    private final String topic;
    private final String group;
    private final String folder;
    private final TopicPartition first;

    private AdminCalls(Admin admin, String server, String prefix, String folder) {
        this.admin = admin;
        this.server = server;
        this.topic = prefix + "-topic";
        this.group = prefix + "-group";
        this.folder = folder;
        this.first = new TopicPartition(topic, 0);
    }

    public static void main(String[] args) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0], "default.api.timeout.ms", "30000"))) {
            AdminCalls calls = new AdminCalls(admin, args[0], args[1], args[2]);
            calls.topics();
            calls.records();
            calls.offsets();
            calls.configs();
            calls.directories();
            calls.groups();
            calls.cluster();
            calls.deletions();
        }
    }

    private void say(String name, Callable<Object> call) {
        Object answer;
        try {
            answer = call.call();
        } catch (ExecutionException failed) {
            answer = "!" + failed.getCause().getClass().getSimpleName();
        } catch (Exception failed) {
            answer = "!" + failed.getClass().getSimpleName();
        }
        System.out.println(name + ": " + answer);
    }

    private void topics() throws Exception {
        NewTopic wanted = new NewTopic(topic, Optional.of(3), Optional.empty()).configs(Map.of("retention.ms", "7200000"));
        say("validated creation", () -> created(
            admin.createTopics(List.of(wanted), new CreateTopicsOptions().validateOnly(true))));
        say("not there yet", () -> admin.describeTopics(List.of(topic)).allTopicNames().get());
        say("creation", () -> created(admin.createTopics(List.of(wanted))));
        say("creation again", () -> created(admin.createTopics(List.of(wanted))));
        say("creation with wrong replicas", () -> created(
            admin.createTopics(List.of(new NewTopic(topic + "-x", Map.of(0, List.of(7)))))));
        say("creation without partitions", () -> created(
            admin.createTopics(List.of(new NewTopic(topic + "-x", 0, (short) 1)))));
        Uuid id = admin.describeTopics(List.of(topic)).topicNameValues().get(topic).get().topicId();
        say("by id", () -> described(admin.describeTopics(TopicCollection.ofTopicIds(List.of(id)))
            .topicIdValues().get(id).get()));
        say("by unknown id", () -> admin.describeTopics(TopicCollection.ofTopicIds(List.of(Uuid.ONE_UUID)))
            .topicIdValues().get(Uuid.ONE_UUID).get());
        say("in pages", () -> described(admin.describeTopics(List.of(topic),
            new DescribeTopicsOptions().partitionSizeLimitPerResponse(1)).topicNameValues().get(topic).get()));
        say("with operations", () -> new TreeSet<>(admin.describeTopics(List.of(topic),
            new DescribeTopicsOptions().includeAuthorizedOperations(true))
            .topicNameValues().get(topic).get().authorizedOperations()));
        say("listed", () -> admin.listTopics().namesToListings().get().get(topic).isInternal());
        say("validated growth", () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5)),
            new CreatePartitionsOptions().validateOnly(true)).all().get());
        say("growth", () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4,
            List.of(List.of(1))))).all().get());
        say("growth to too many assignments", () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5,
            List.of(List.of(1), List.of(1))))).all().get());
        say("partitions", () -> admin.describeTopics(List.of(topic)).topicNameValues().get(topic).get()
            .partitions().size());
        say("election", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(first)).all().get());
        say("election of all", () -> admin.electLeaders(ElectionType.PREFERRED, null).partitions().get().size());
    }

    private static String created(CreateTopicsResult result) throws Exception {
        String name = result.values().keySet().iterator().next();
        result.all().get();
        ConfigEntry retention = result.config(name).get().get("retention.ms");
        return result.numPartitions(name).get() + " partitions, " + result.replicationFactor(name).get()
            + " replicas, id " + (result.topicId(name).get() != null)
            + ", retention " + retention.value() + " " + retention.source();
    }

    private static String described(TopicDescription topic) {
        List<String> partitions = new ArrayList<>();
        topic.partitions().forEach(each -> partitions.add(
            each.partition() + "/" + each.leader().id() + "/" + each.replicas().size() + "/" + each.isr().size()));
        return topic.isInternal() + " " + partitions;
    }

    private void records() throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", server);
        ByteArraySerializer plain = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, plain, plain)) {
            for (int number = 0; number < 10; number++) {
                byte[] value = Integer.toString(number).getBytes(StandardCharsets.UTF_8);
                // The newest time is not the last record's.
                long time = 1_700_000_000_000L + (number == 5 ? 1000 : number);
                producer.send(new ProducerRecord<>(topic, 0, time, null, value)).get();
            }
        }
        say("producers", () -> admin.describeProducers(Set.of(first)).partitionResult(first).get()
            .activeProducers().stream().map(each -> each.producerEpoch() + "/" + each.lastSequence() + "/"
                + each.coordinatorEpoch() + "/" + each.currentTransactionStartOffset()).toList());
        TopicPartition unknown = new TopicPartition(topic, 99);
        say("producers of nothing", () -> admin.describeProducers(Set.of(unknown),
            new DescribeProducersOptions().timeoutMs(2000)).partitionResult(unknown).get());
        say("deleted records", () -> admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(2)))
            .lowWatermarks().get(first).get().lowWatermark());
        say("too many deleted", () -> admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(11)))
            .lowWatermarks().get(first).get().lowWatermark());
    }

    private void offsets() {
        Map<String, OffsetSpec> specs = new TreeMap<>(Map.of(
            "earliest", OffsetSpec.earliest(),
            "latest", OffsetSpec.latest(),
            "max timestamp", OffsetSpec.maxTimestamp(),
            "earliest local", OffsetSpec.earliestLocal(),
            "latest tiered", OffsetSpec.latestTiered(),
            "earliest pending upload", OffsetSpec.earliestPendingUpload(),
            "time of the sixth", OffsetSpec.forTimestamp(1_700_000_000_100L),
            "time of the eighth", OffsetSpec.forTimestamp(1_700_000_000_007L),
            "time of none", OffsetSpec.forTimestamp(1_800_000_000_000L)));
        specs.forEach((name, spec) -> say("offset, " + name, () -> {
            var info = admin.listOffsets(Map.of(first, spec)).partitionResult(first).get();
            return info.offset() + " at " + info.timestamp() + " in " + info.leaderEpoch();
        }));
        TopicPartition unknown = new TopicPartition(topic + "-x", 0);
        say("offset of nothing", () -> admin.listOffsets(Map.of(unknown, OffsetSpec.latest()),
            new org.apache.kafka.clients.admin.ListOffsetsOptions().timeoutMs(3000)).partitionResult(unknown).get());
    }

    private void configs() {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        say("set", () -> change(resource, "cleanup.policy", "compact", AlterConfigOp.OpType.SET));
        say("append", () -> change(resource, "cleanup.policy", "delete", AlterConfigOp.OpType.APPEND));
        say("appended", () -> value(resource, "cleanup.policy"));
        say("subtract", () -> change(resource, "cleanup.policy", "compact", AlterConfigOp.OpType.SUBTRACT));
        say("subtracted", () -> value(resource, "cleanup.policy"));
        say("append to a number", () -> change(resource, "retention.ms", "1", AlterConfigOp.OpType.APPEND));
        say("wrong value", () -> change(resource, "min.insync.replicas", "0", AlterConfigOp.OpType.SET));
        say("unknown name", () -> change(resource, "nope", "0", AlterConfigOp.OpType.SET));
        say("delete", () -> change(resource, "cleanup.policy", null, AlterConfigOp.OpType.DELETE));
        say("deleted", () -> value(resource, "cleanup.policy"));
        say("of no topic", () -> value(new ConfigResource(ConfigResource.Type.TOPIC, topic + "-x"), "retention.ms"));
        say("of no broker", () -> value(new ConfigResource(ConfigResource.Type.BROKER, "77"), "node.id"));
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        say("documented", () -> {
            Config config = admin.describeConfigs(List.of(broker),
                new DescribeConfigsOptions().includeDocumentation(true).includeSynonyms(true)).all().get().get(broker);
            long silent = config.entries().stream()
                .filter(each -> each.documentation() == null || each.documentation().isBlank()).count();
            return silent + " without a word, " + config.get("node.id").isReadOnly() + " "
                + config.get("log.cleaner.threads").isReadOnly() + " " + config.get("log.retention.bytes").type();
        });
        say("resources", () -> {
            var types = Set.of(ConfigResource.Type.BROKER, ConfigResource.Type.TOPIC);
            var listed = admin.listConfigResources(types, new org.apache.kafka.clients.admin.ListConfigResourcesOptions())
                .all().get();
            return listed.contains(broker) + " " + listed.contains(resource);
        });
    }

    private Object change(ConfigResource resource, String name, String value, AlterConfigOp.OpType kind)
            throws Exception {
        AlterConfigOp operation = new AlterConfigOp(new ConfigEntry(name, value), kind);
        return admin.incrementalAlterConfigs(Map.of(resource, List.of(operation))).all().get();
    }

    private Object value(ConfigResource resource, String name) throws Exception {
        ConfigEntry entry = admin.describeConfigs(List.of(resource), new DescribeConfigsOptions().timeoutMs(5000))
            .all().get().get(resource).get(name);
        return entry.value() + " " + entry.source();
    }

    private void directories() {
        TopicPartitionReplica replica = new TopicPartitionReplica(topic, 0, 1);
        say("directories", () -> {
            var found = admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1);
            var described = found.get(folder);
            return found.keySet().equals(Set.of(folder)) + " " + (described.totalBytes().getAsLong() > 0) + " "
                + (described.usableBytes().getAsLong() > 0) + " "
                + described.replicaInfos().get(first).offsetLag() + " " + described.replicaInfos().get(first).isFuture();
        });
        say("replica's directory", () -> admin.describeReplicaLogDirs(List.of(replica)).values().get(replica).get()
            .getCurrentReplicaLogDir().equals(folder));
        say("move to where it is", () -> admin.alterReplicaLogDirs(Map.of(replica, folder)).all().get());
        say("move to nowhere", () -> admin.alterReplicaLogDirs(Map.of(replica, folder + "/nowhere")).all().get());
        TopicPartitionReplica unknown = new TopicPartitionReplica(topic + "-x", 0, 1);
        say("move of nothing", () -> admin.alterReplicaLogDirs(Map.of(unknown, folder)).all().get());
    }

    private void groups() throws Exception {
        say("offsets set", () -> admin.alterConsumerGroupOffsets(group,
            Map.of(first, new OffsetAndMetadata(4, Optional.of(0), "note"))).all().get());
        String other = group + "-x";
        say("offsets of two groups", () -> {
            var all = admin.listConsumerGroupOffsets(Map.of(
                group, new ListConsumerGroupOffsetsSpec(),
                other, new ListConsumerGroupOffsetsSpec().topicPartitions(List.of(first)))).all().get();
            OffsetAndMetadata mine = all.get(group).get(first);
            return mine.offset() + " " + mine.metadata() + " " + mine.leaderEpoch() + " " + all.get(other);
        });
        say("offsets without a topic", () -> admin.alterConsumerGroupOffsets(group,
            Map.of(new TopicPartition(topic + "-x", 0), new OffsetAndMetadata(1))).all().get());
        say("listed", () -> admin.listGroups(new ListGroupsOptions().withTypes(Set.of(GroupType.CLASSIC))
            .inGroupStates(Set.of(GroupState.EMPTY))).all().get().stream()
            .filter(each -> each.groupId().equals(group))
            .map(each -> each.type() + " " + each.protocol() + " " + each.groupState()).toList());
        say("internal topics", () -> new TreeSet<>(admin.listTopics(new ListTopicsOptions().listInternal(true))
            .namesToListings().get().values().stream().filter(each -> each.isInternal())
            .map(each -> each.name()).toList()).contains("__consumer_offsets"));
        withMember();
        say("left", () -> admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupState());
        say("offsets deleted", () -> admin.deleteConsumerGroupOffsets(group, Set.of(first)).all().get());
        say("groups deleted", () -> admin.deleteConsumerGroups(List.of(group, other)).deletedGroups().get(other).get());
        say("no group", () -> admin.describeConsumerGroups(List.of(other)).all().get());
        say("no classic group", () -> admin.describeClassicGroups(List.of(other)).all().get());
    }

    private void withMember() throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", server, "group.id", group,
            "group.instance.id", "station", "client.id", "observer");
        ByteArrayDeserializer plain = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, plain, plain)) {
            consumer.subscribe(List.of(topic));
            long deadline = System.nanoTime() + 30_000_000_000L;
            while (consumer.assignment().isEmpty() && System.nanoTime() < deadline) {
                consumer.poll(java.time.Duration.ofMillis(100));
            }
            say("members", () -> {
                var described = admin.describeConsumerGroups(List.of(group),
                    new org.apache.kafka.clients.admin.DescribeConsumerGroupsOptions()
                        .includeAuthorizedOperations(true)).all().get().get(group);
                var member = described.members().iterator().next();
                return described.groupState() + " " + described.type() + " " + described.partitionAssignor() + " "
                    + described.coordinator().id() + " " + member.groupInstanceId() + " " + member.clientId() + " "
                    + member.host() + " " + member.assignment().topicPartitions().size() + " "
                    + new TreeSet<>(described.authorizedOperations());
            });
            say("as classic group", () -> {
                var described = admin.describeClassicGroups(List.of(group)).all().get().get(group);
                return described.state() + " " + described.protocol() + " " + described.protocolData() + " "
                    + described.members().size();
            });
            say("offsets of members", () -> admin.alterConsumerGroupOffsets(group,
                Map.of(first, new OffsetAndMetadata(1))).all().get());
            say("deletion of members", () -> admin.deleteConsumerGroups(List.of(group)).all().get());
            say("removal of nobody", () -> admin.removeMembersFromConsumerGroup(group,
                new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("nobody")))).all().get());
            say("removal", () -> admin.removeMembersFromConsumerGroup(group,
                new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("station")))).all().get());
        } catch (org.apache.kafka.common.errors.FencedInstanceIdException fenced) {
            say("the removed member", () -> "fenced");
        }
    }

    private void cluster() {
        say("cluster", () -> {
            var cluster = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true)
                .includeFencedBrokers(true));
            Collection<?> nodes = cluster.nodes().get();
            return nodes.size() + " " + cluster.controller().get().id() + " " + cluster.clusterId().get().length() + " "
                + new TreeSet<>(cluster.authorizedOperations().get());
        });
        say("quorum", () -> {
            var quorum = admin.describeMetadataQuorum().quorumInfo().get();
            return quorum.leaderId() + " " + quorum.voters().size() + " " + quorum.observers() + " "
                + quorum.nodes().keySet() + " " + (quorum.highWatermark() > 0);
        });
        say("features", () -> {
            var features = admin.describeFeatures().featureMetadata().get();
            return features.finalizedFeatures().get("metadata.version") + " "
                + features.supportedFeatures().get("metadata.version") + " "
                + features.finalizedFeaturesEpoch().isPresent();
        });
        say("feature trial", () -> admin.updateFeatures(
            Map.of("metadata.version", new FeatureUpdate((short) 25, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE)),
            new UpdateFeaturesOptions().validateOnly(true)).all().get());
        say("feature upgrade that is none", () -> admin.updateFeatures(
            Map.of("metadata.version", new FeatureUpdate((short) 25, FeatureUpdate.UpgradeType.UPGRADE)),
            new UpdateFeaturesOptions().validateOnly(true)).all().get());
        say("feature without a name", () -> admin.updateFeatures(
            Map.of("nope", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)),
            new UpdateFeaturesOptions()).all().get());
        say("no such broker", () -> admin.unregisterBroker(77).all().get());
    }

    private void deletions() throws Exception {
        Uuid id = admin.describeTopics(List.of(topic)).topicNameValues().get(topic).get().topicId();
        say("deletion by id", () -> admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get());
        say("deletion by id again", () -> admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get());
        say("deletion of nothing", () -> admin.deleteTopics(List.of(topic)).all().get());
        say("gone", () -> admin.listTopics().names().get().contains(topic));
    }
}
