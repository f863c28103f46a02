import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.Utils;

/** Record batches as Apache reads and builds them; JSON on the other side, bytes as base64. */
final class RecordsOracle {
    private RecordsOracle() {
    }

    /** Batches to a list of their headers and records; a wrong checksum or count throws. */
    static byte[] read(ObjectMapper json, byte[] content) throws IOException {
        ArrayNode batches = json.createArrayNode();
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(content));
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            ObjectNode view = batches.addObject();
            view.put("base_offset", batch.baseOffset());
            view.put("last_offset", batch.lastOffset());
            view.put("leader_epoch", batch.partitionLeaderEpoch());
            view.put("codec", batch.compressionType().name);
            view.put("append_time", batch.timestampType() == TimestampType.LOG_APPEND_TIME);
            view.put("max_timestamp", batch.maxTimestamp());
            view.put("producer_id", batch.producerId());
            view.put("producer_epoch", batch.producerEpoch());
            view.put("base_sequence", batch.baseSequence());
            view.put("last_sequence", batch.lastSequence());
            view.put("transactional", batch.isTransactional());
            view.put("control", batch.isControlBatch());
            view.put("size_bytes", batch.sizeInBytes());
            if (batch.deleteHorizonMs().isPresent()) {
                view.put("delete_horizon_ms", batch.deleteHorizonMs().getAsLong());
            } else {
                view.putNull("delete_horizon_ms");
            }
            ArrayNode inside = view.putArray("records");
            for (Record record : batch) {
                record.ensureValid();
                inside.add(view(json, record));
            }
        }
        return json.writeValueAsBytes(batches);
    }

    private static ObjectNode view(ObjectMapper json, Record record) {
        ObjectNode view = json.createObjectNode();
        view.put("offset", record.offset());
        view.put("timestamp", record.timestamp());
        view.put("key", record.hasKey() ? Utils.toArray(record.key()) : null);
        view.put("value", record.hasValue() ? Utils.toArray(record.value()) : null);
        ArrayNode headers = view.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(header.value());
        }
        return view;
    }

    /** One batch from a header's facts and records. */
    static byte[] build(ObjectMapper json, byte[] wish) throws IOException {
        JsonNode node = json.readTree(wish);
        boolean appendTime = node.get("append_time").asBoolean();
        ByteBufferOutputStream out = new ByteBufferOutputStream(1024);
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
            out,
            RecordBatch.MAGIC_VALUE_V2,
            Compression.of(node.get("codec").asText()).build(),
            appendTime ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME,
            node.get("base_offset").asLong(),
            appendTime ? node.get("max_timestamp").asLong() : RecordBatch.NO_TIMESTAMP,
            node.get("producer_id").asLong(),
            (short) node.get("producer_epoch").asInt(),
            node.get("base_sequence").asInt(),
            node.get("transactional").asBoolean(),
            false,
            node.get("leader_epoch").asInt(),
            Integer.MAX_VALUE);
        for (JsonNode record : node.get("records")) {
            JsonNode named = record.get("headers");
            Header[] headers = new Header[named.size()];
            for (int i = 0; i < headers.length; i++) {
                headers[i] = new RecordHeader(named.get(i).get(0).asText(), bytes(named.get(i).get(1)));
            }
            builder.appendWithOffset(
                record.get("offset").asLong(),
                record.get("timestamp").asLong(),
                bytes(record.get("key")),
                bytes(record.get("value")),
                headers);
        }
        return Utils.toArray(builder.build().buffer());
    }

    private static byte[] bytes(JsonNode node) throws IOException {
        return node.isNull() ? null : node.binaryValue();
    }
}
