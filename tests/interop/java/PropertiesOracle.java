import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Properties;

/**
 * Reads properties files as Java does. Each line of the input is one file in hexadecimal; for each
 * one line is printed: key and value in turn, in hexadecimal, or "refused".
 */
public final class PropertiesOracle {
    private static final HexFormat HEX = HexFormat.of();

    private PropertiesOracle() { }

    public static void main(String[] arguments) throws IOException {
        BufferedReader files = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = files.readLine(); line != null; line = files.readLine()) {
            System.out.println(answer(new String(HEX.parseHex(line), StandardCharsets.UTF_8)));
        }
    }

    private static String answer(String file) throws IOException {
        Properties properties = new Properties();
        try {
            properties.load(new StringReader(file));
        } catch (IllegalArgumentException broken) {
            return "refused";
        }
        StringBuilder answer = new StringBuilder("read");
        for (String name : properties.stringPropertyNames()) {
            answer.append(' ').append(hex(name)).append(' ').append(hex(properties.getProperty(name)));
        }
        return answer.toString();
    }

    /** Never empty: a text begins with a mark. */
    private static String hex(String text) {
        return HEX.formatHex(("." + text).getBytes(StandardCharsets.UTF_8));
    }
}
