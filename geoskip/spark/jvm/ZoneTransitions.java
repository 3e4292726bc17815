package geoskip;

import java.time.Instant;
import java.time.zone.ZoneOffsetTransition;
import java.time.zone.ZoneRules;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;

/** The clocks of time zones, by the tables that Spark itself uses (geoskip/evaluation/clocks.py). */
class ZoneTransitions {
    private static final long UNTIL = 7258118400L; // the year 2200; most zones go on for ever

    /** Until when they are told of, how far ahead of UTC they were first, then `time:ahead` for each change; seconds. */
    static String clocks(String zone) {
        ZoneRules rules;
        try {
            rules = DateTimeUtils.getZoneId(zone).getRules();
        } catch (RuntimeException unknown) {
            return null;
        }
        ZoneOffsetTransition next = rules.nextTransition(Instant.MIN);
        int first = (next == null ? rules.getOffset(Instant.EPOCH) : next.getOffsetBefore()).getTotalSeconds();
        StringBuilder text = new StringBuilder().append(UNTIL).append(' ').append(first);
        while (next != null && next.toEpochSecond() < UNTIL) {
            text.append(' ').append(next.toEpochSecond()).append(':').append(next.getOffsetAfter().getTotalSeconds());
            next = rules.nextTransition(next.getInstant());
        }
        return text.toString();
    }
}
