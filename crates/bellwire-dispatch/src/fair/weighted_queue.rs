//! Turns: apps by their weights, and the items of an app in order.

use std::collections::{HashMap, VecDeque};

use bellwire_core::id::AppId;

/// Items that wait for a turn, by app. Pushing and popping take constant time.
pub(crate) struct Turns<T> {
    /// Apps that have something waiting, or had when it was last their turn.
    line: VecDeque<AppId>,
    apps: HashMap<AppId, WaitingQueue<T>>,
    len: usize,
}

struct WaitingQueue<T> {
    things: VecDeque<T>,
    weight: u32,
    /// Turns that it has before the next app has its own.
    left: u32,
    in_line: bool,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { line: VecDeque::new(), apps: HashMap::new(), len: 0 }
    }
}

impl<T> Turns<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Lines something up behind what waits for the same app, whose weight counts from now on.
    pub(crate) fn push(&mut self, app: AppId, weight: u32, thing: T) {
        let weight = weight.max(1);
        let waiting = self.apps.entry(app).or_insert_with(|| WaitingQueue {
            things: VecDeque::new(),
            weight,
            left: weight,
            in_line: false,
        });
        waiting.weight = weight;
        waiting.left = waiting.left.min(weight);
        waiting.things.push_back(thing);
        self.len += 1;
        if !waiting.in_line {
            waiting.in_line = true;
            self.line.push_back(app);
        }
    }

    /// Returns the next item. An app without waiting items leaves the line at its turn. Its unused turns are lost, because
    /// otherwise it would be compensated for idle time.
    pub(crate) fn pop(&mut self) -> Option<T> {
        while self.len > 0 {
            let app = *self.line.front()?;
            let waiting = self.apps.get_mut(&app)?;
            let thing = waiting.things.pop_front();
            if thing.is_some() {
                self.len -= 1;
                waiting.left -= 1;
            }
            let is_over = thing.is_none() || waiting.left == 0;
            if is_over {
                waiting.left = waiting.weight;
                self.line.pop_front();
            }
            match thing {
                None => waiting.in_line = false,
                Some(_) if is_over => self.line.push_back(app),
                Some(_) => {}
            }
            if thing.is_some() {
                return thing;
            }
        }
        None
    }

    pub(crate) fn forget_idle(&mut self) {
        self.apps.retain(|_, waiting| !waiting.things.is_empty());
        self.line.retain(|app| self.apps.contains_key(app));
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const ONE: AppId = AppId(Uuid::from_u128(1));
    const OTHER: AppId = AppId(Uuid::from_u128(2));

    /// The turns of one app and another, each of which has something waiting all the time.
    fn turns_of(weights: [u32; 2], n: usize) -> String {
        let mut turns = Turns::default();
        let line_up = |turns: &mut Turns<_>, app| turns.push(app, weights[usize::from(app == OTHER)], app);
        line_up(&mut turns, ONE);
        line_up(&mut turns, OTHER);
        let next = |_| {
            let app = turns.pop().unwrap();
            line_up(&mut turns, app);
            if app == ONE { 'a' } else { 'b' }
        };
        (0..n).map(next).collect()
    }

    #[test]
    fn apps_have_turns_by_their_weights() {
        assert_eq!(turns_of([1, 1], 6), "ababab");
        assert_eq!(turns_of([3, 1], 8), "aaabaaab");
        assert_eq!(turns_of([2, 3], 10), "aabbbaabbb");
    }

    #[test]
    fn things_of_one_app_keep_their_order() {
        let mut turns = Turns::default();
        assert_eq!((turns.is_empty(), turns.pop()), (true, None));
        (0..3).for_each(|n| turns.push(ONE, 9, n));
        assert_eq!(std::iter::from_fn(|| turns.pop()).collect::<Vec<_>>(), [0, 1, 2]);
        turns.push(OTHER, 1, 10);
        (3..6).for_each(|n| turns.push(ONE, 1, n));
        turns.push(OTHER, 1, 11);
        assert_eq!(std::iter::from_fn(|| turns.pop()).collect::<Vec<_>>(), [3, 10, 4, 11, 5], "the weight of now");
        turns.forget_idle();
        assert!(turns.is_empty() && turns.apps.is_empty() && turns.line.is_empty());
        turns.push(ONE, 1, 6);
        assert_eq!(turns.pop(), Some(6));
    }
}
