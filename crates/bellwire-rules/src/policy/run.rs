//! Results of the last POSTs, in the order of their start.
//!
//! A failing push service responds fast, and a working one may be slow. In the order of responses, a few failures among a
//! hundred concurrent POSTs would look like a run of failures.

/// Number of POSTs that are remembered. Earlier ones do not count.
const REMEMBERED: u64 = 1_024;
const WORDS: usize = REMEMBERED as usize / 64;

/// Result of each of the last POSTs: none yet or a success, a failure, or neutral.
#[derive(Debug, Clone, Default)]
pub(super) struct Run {
    begun: u64,
    since: u64,
    failed: [u64; WORDS],
    void: [u64; WORDS],
}

impl Run {
    pub(super) fn begin(&mut self) -> u64 {
        let number = self.begun;
        self.begun += 1;
        let (word, bit) = place(number);
        self.failed[word] &= !bit;
        self.void[word] &= !bit;
        number
    }

    /// Drops all POSTs so far.
    pub(super) fn forget(&mut self) {
        self.since = self.begun;
    }

    pub(super) fn counts(&self, number: u64) -> bool {
        (self.since..self.begun).contains(&number)
    }

    /// Records a failed POST. Returns the length of the run of failures around it; neutral results are skipped.
    pub(super) fn fail(&mut self, number: u64) -> u32 {
        if number < self.first() {
            return 0;
        }
        let (word, bit) = place(number);
        self.failed[word] |= bit;
        let before = (self.first()..number).rev();
        let after = number + 1..self.begun;
        1 + self.failures(before) + self.failures(after)
    }

    /// Records a POST that has a neutral result, or was not made.
    pub(super) fn void(&mut self, number: u64) {
        if number >= self.first() {
            let (word, bit) = place(number);
            self.void[word] |= bit;
        }
    }

    fn first(&self) -> u64 {
        self.since.max(self.begun.saturating_sub(REMEMBERED))
    }

    fn failures(&self, numbers: impl Iterator<Item = u64>) -> u32 {
        let is = |bits: &[u64; WORDS], number: u64| {
            let (word, bit) = place(number);
            bits[word] & bit != 0
        };
        let row = numbers.filter(|number| !is(&self.void, *number)).take_while(|number| is(&self.failed, *number));
        u32::try_from(row.count()).unwrap_or(u32::MAX)
    }
}

fn place(number: u64) -> (usize, u64) {
    let at = number % REMEMBERED;
    ((at / 64) as usize, 1 << (at % 64))
}

#[cfg(test)]
#[path = "../../../../tests/crates/rules/unit/policy/run.rs"]
mod tests;
