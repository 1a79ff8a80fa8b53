import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.Writer;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;

/** Sink connector that writes what a worker's converters and transforms made of each record, one line of JSON each. */
public class CaseSink extends SinkConnector {
    private Map<String, String> settings;

    @Override
    public void start(Map<String, String> given) {
        settings = given;
    }

    @Override
    public Class<? extends Task> taskClass() {
        return Writes.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int tasks) {
        return List.of(settings);
    }

    @Override
    public void stop() {}

    @Override
    public ConfigDef config() {
        return new ConfigDef()
                .define("case.file", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "Where the lines go.");
    }

    @Override
    public String version() {
        return "1";
    }

    /** The task: one file of lines, and one that says up to which offset all was seen, also what was filtered. */
    public static class Writes extends SinkTask {
        private static final ObjectMapper JSON = new ObjectMapper();
        private Path lines;

        @Override
        public void start(Map<String, String> settings) {
            lines = Path.of(settings.get("case.file"));
        }

        @Override
        public void put(Collection<SinkRecord> records) {
            try (Writer out = Files.newBufferedWriter(
                    lines, StandardCharsets.UTF_8, StandardOpenOption.CREATE, StandardOpenOption.APPEND)) {
                for (SinkRecord each : records) {
                    out.write(JSON.writeValueAsString(shown(each)) + "\n");
                }
            } catch (java.io.IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        }

        @Override
        public Map<TopicPartition, OffsetAndMetadata> preCommit(Map<TopicPartition, OffsetAndMetadata> seen) {
            try {
                long end = seen.values().stream().mapToLong(OffsetAndMetadata::offset).max().orElse(0);
                Files.writeString(Path.of(lines + ".seen"), Long.toString(end));
            } catch (java.io.IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
            return seen;
        }

        @Override
        public void stop() {}

        @Override
        public String version() {
            return "1";
        }

        private static Map<String, Object> shown(SinkRecord record) {
            Map<String, Object> out = new LinkedHashMap<>();
            out.put("record", record.originalKafkaOffset());
            out.put("topic", record.topic());
            out.put("partition", record.kafkaPartition());
            out.put("timestamp", record.timestamp());
            out.put("key_schema", schema(record.keySchema()));
            out.put("key", value(record.keySchema(), record.key()));
            out.put("value_schema", schema(record.valueSchema()));
            out.put("value", value(record.valueSchema(), record.value()));
            List<Object> headers = new ArrayList<>();
            for (Header each : record.headers()) {
                Map<String, Object> header = new LinkedHashMap<>();
                header.put("key", each.key());
                header.put("schema", schema(each.schema()));
                header.put("value", value(each.schema(), each.value()));
                headers.add(header);
            }
            out.put("headers", headers);
            return out;
        }

        private static Object schema(Schema schema) {
            if (schema == null) {
                return null;
            }
            Map<String, Object> out = new LinkedHashMap<>();
            out.put("type", schema.type().getName());
            if (schema.name() != null) {
                out.put("name", schema.name());
            }
            if (schema.version() != null) {
                out.put("version", schema.version());
            }
            if (schema.isOptional()) {
                out.put("optional", true);
            }
            if (schema.parameters() != null && !schema.parameters().isEmpty()) {
                out.put("parameters", schema.parameters());
            }
            switch (schema.type()) {
                case STRUCT -> {
                    Map<String, Object> fields = new LinkedHashMap<>();
                    for (Field each : schema.fields()) {
                        fields.put(each.name(), schema(each.schema()));
                    }
                    out.put("fields", fields);
                }
                case ARRAY -> out.put("items", schema(schema.valueSchema()));
                case MAP -> {
                    out.put("keys", schema(schema.keySchema()));
                    out.put("values", schema(schema.valueSchema()));
                }
                default -> { }
            }
            return out;
        }

        /** Plain JSON where JSON has it; other types as an object with one key that says which. */
        private static Object value(Schema schema, Object found) {
            if (found instanceof Struct struct) {
                Map<String, Object> out = new LinkedHashMap<>();
                for (Field each : struct.schema().fields()) {
                    out.put(each.name(), value(each.schema(), struct.get(each)));
                }
                return out;
            }
            if (found instanceof Map<?, ?> map) {
                Map<String, Object> out = new LinkedHashMap<>();
                map.forEach((key, each) -> out.put(String.valueOf(key), value(null, each)));
                return out;
            }
            if (found instanceof List<?> list) {
                return list.stream().map(each -> value(null, each)).toList();
            }
            if (found instanceof byte[] bytes) {
                return Map.of("$bytes", Base64.getEncoder().encodeToString(bytes));
            }
            if (found instanceof ByteBuffer bytes) {
                byte[] copied = new byte[bytes.remaining()];
                bytes.duplicate().get(copied);
                return Map.of("$bytes", Base64.getEncoder().encodeToString(copied));
            }
            if (found instanceof Date date) {
                return Map.of("$date_ms", date.getTime());
            }
            if (found instanceof BigDecimal decimal) {
                return Map.of("$decimal", decimal.toPlainString());
            }
            if (found instanceof Double number && (number.isNaN() || number.isInfinite())) {
                return Map.of("$double", number.toString());
            }
            if (found instanceof Float number) {
                return number.isNaN() || number.isInfinite()
                        ? Map.of("$double", number.toString())
                        : (Object) Double.valueOf(number.toString());
            }
            return found;
        }
    }
}
