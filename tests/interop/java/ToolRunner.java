import java.io.BufferedOutputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs command line tools inside this JVM, one after the other: their input is given, their output
 * and exit status caught, and a tool that takes too long is given up with its stack as the error.
 */
final class ToolRunner {
    private static final int GAVE_UP = 124;

    /** The first exit that the running tool asked for: some catch what then flies, and ask again. */
    private static final AtomicReference<ExitRequested> FIRST_EXIT = new AtomicReference<>();

    /** What the running tool wants done at the end, such as sending what it buffered. */
    private static final Queue<Runnable> HOOKS = new ConcurrentLinkedQueue<>();

    private ToolRunner() { }

    /** Thrown in place of ending the JVM when a tool asks for it. */
    private static final class ExitRequested extends RuntimeException {
        private static final long serialVersionUID = 1L;
        final int status;

        ExitRequested(int status, String message) {
            super(message);
            this.status = status;
        }
    }

    static void forbidExits() {
        Exit.setExitProcedure(ToolRunner::note);
        Exit.setHaltProcedure(ToolRunner::note);
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
    }

    private static void note(int status, String message) {
        ExitRequested request = new ExitRequested(status, message);
        if (FIRST_EXIT.compareAndSet(null, request)) {
            // What a tool says about the exception is not its own.
            System.err.flush();
            System.setErr(new PrintStream(OutputStream.nullOutputStream(), true, StandardCharsets.UTF_8));
        }
        throw request;
    }

    /** Exit status, standard output, standard error. */
    static List<byte[]> run(String mainClass, byte[] input, long limitMs, String[] arguments) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        InputStream formerIn = System.in;
        PrintStream formerOut = System.out;
        PrintStream formerErr = System.err;
        FIRST_EXIT.set(null);
        HOOKS.clear();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        System.setIn(new ByteArrayInputStream(input));
        System.setOut(new PrintStream(new BufferedOutputStream(out, 1 << 16), false, StandardCharsets.UTF_8));
        PrintStream errors = new PrintStream(err, true, StandardCharsets.UTF_8);
        System.setErr(errors);
        int status;
        try {
            Thread tool = new Thread(() -> invoke(mainClass, arguments, failure), mainClass);
            tool.setDaemon(true);
            tool.start();
            tool.join(limitMs);
            status = tool.isAlive() ? giveUp(tool, errors) : statusOf(failure.get(), errors);
        } finally {
            System.out.flush();
            System.setIn(formerIn);
            System.setOut(formerOut);
            System.setErr(formerErr);
        }
        return List.of(Integer.toString(status).getBytes(StandardCharsets.UTF_8), out.toByteArray(), err.toByteArray());
    }

    private static void invoke(String mainClass, String[] arguments, AtomicReference<Throwable> failure) {
        try {
            Class.forName(mainClass).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            failure.set(thrown.getCause());
        } catch (ReflectiveOperationException absent) {
            failure.set(absent);
        } finally {
            HOOKS.forEach(Runnable::run);
        }
    }

    private static int giveUp(Thread tool, PrintStream errors) {
        errors.println("given up; it was at:");
        for (StackTraceElement place : tool.getStackTrace()) {
            errors.println("  " + place);
        }
        tool.interrupt();
        return GAVE_UP;
    }

    private static int statusOf(Throwable failure, PrintStream errors) {
        ExitRequested asked = FIRST_EXIT.get();
        if (asked != null) {
            if (asked.getMessage() != null) {
                errors.println(asked.getMessage());
            }
            return asked.status;
        }
        if (failure != null) {
            failure.printStackTrace(errors);
            return 1;
        }
        return 0;
    }
}
