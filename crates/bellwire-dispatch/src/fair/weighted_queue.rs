//! Round robin among apps by weight. Items of an app are in order.

use std::collections::{HashMap, VecDeque};

use bellwire_core::id::AppId;

/// Waiting items by app. Pushing and popping take constant time.
pub(crate) struct Turns<T> {
    /// Apps with waiting items, or that had some at their last pop.
    line: VecDeque<AppId>,
    apps: HashMap<AppId, WaitingQueue<T>>,
    len: usize,
}

struct WaitingQueue<T> {
    things: VecDeque<T>,
    weight: u32,
    /// Remaining pops of the app before the next app follows.
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

    /// Appends an item of an app. The weight applies from now on.
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

    /// Returns the next item. An app without waiting items leaves the queue when it would be next. Its unused pops are lost, so
    /// that it is not compensated for idle time.
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
#[path = "../../../../tests/crates/dispatch/unit/fair/weighted_queue.rs"]
mod tests;
