//! Formats the demo's results for people.

use std::fmt::{self, Display, Formatter};

use super::account::{Account, Check, GatewayLine, KindCounts, Latency};
use super::faults;

/// A number formatted with thousands separators.
struct Grouped(u64);

impl Display for Grouped {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::with_capacity(digits.len() * 4 / 3);
        for (at, digit) in digits.char_indices() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        f.pad(&text)
    }
}

impl Display for Account {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let heads = ["sent", "accepted", "gone", "dead", "expired", "cancelled", "open"];
        write!(f, "\n{:<16}", "")?;
        heads.iter().try_for_each(|head| write!(f, "{head:>11}"))?;
        writeln!(f)?;
        self.messages.iter().try_for_each(|counts| write_counts(f, counts))?;
        for (reason, n) in &self.dead {
            writeln!(f, "  {} {reason}", Grouped(*n))?;
        }
        writeln!(f, "\n{:<16}{:>11}  {:<44}{:>7}{:>7}{:>7}", "gateway", "requests", "answers", "p50", "p99", "max")?;
        self.gateways.iter().try_for_each(|line| write_gateway(f, line))?;
        self.write_speed(f)?;
        self.write_checks(f)
    }
}

fn write_counts(f: &mut Formatter<'_>, counts: &KindCounts) -> fmt::Result {
    let KindCounts { kind, targeted, accepted, gone, expired, dead, cancelled, open } = counts;
    write!(f, "{kind:<16}")?;
    for n in [targeted, accepted, gone, dead, expired, cancelled, open] {
        write!(f, "{:>11}", Grouped(*n))?;
    }
    writeln!(f)
}

fn write_gateway(f: &mut Formatter<'_>, line: &GatewayLine) -> fmt::Result {
    let answers: Vec<String> = line.statuses.iter().map(|(status, n)| format!("{}×{status}", Grouped(*n))).collect();
    let story = match line.gateway {
        gateway if gateway == faults::THROTTLING => "  throttling",
        gateway if gateway == faults::DOWN => "  down for a while",
        _ => "",
    };
    let Latency { p50_ms, p99_ms, max_ms, .. } = line.latency;
    let (name, requests) = (line.gateway.name(), Grouped(line.requests));
    writeln!(f, "{name:<16}{requests:>11}  {:<44}{p50_ms:>7}{p99_ms:>7}{max_ms:>7}{story}", answers.join("  "))
}

impl Account {
    fn write_speed(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let whole = |rate: f64| Grouped(rate as u64);
        let Latency { messages, p50_ms, p99_ms, max_ms } = self.latency;
        writeln!(f, "  (p50, p99, max: single messages, request to first POST, in ms)")?;
        writeln!(
            f,
            "\nregistered {} browsers, {} a second",
            Grouped(self.subscriptions as u64),
            whole(self.registered_per_s)
        )?;
        writeln!(
            f,
            "campaign: half of it at {} deliveries a second; {:.1} s in all, with outage, pause and retries",
            whole(self.campaign_peak_per_s),
            self.campaign_s
        )?;
        writeln!(
            f,
            "single messages beside it, {messages} by gateways that were up: p50 {p50_ms} ms, p99 {p99_ms} ms, max {max_ms} ms"
        )?;
        match self.repeated {
            0 => Ok(()),
            n => writeln!(f, "{n} pushes were taken twice: the gateway went down with the first answer on its way"),
        }
    }

    fn write_checks(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.adds_up {
            return writeln!(f, "\nIt adds up: {} checks hold.", self.checks.len());
        }
        writeln!(f, "\nIt does not add up:")?;
        for Check { what, expected, found } in self.checks.iter().filter(|check| !check.holds()) {
            writeln!(f, "  {what}: {}, not {}", Grouped(*found), Grouped(*expected))?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "../../tests/unit/demo/table.rs"]
mod tests;
