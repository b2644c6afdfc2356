//! Processes that run while a test does.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// A process that ends with its value.
pub struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a process. Returns what `found` makes of the first line of JSON that it accepts.
pub fn start<T>(command: &mut Command, from_stderr: bool, found: impl Fn(&Value) -> Option<T>) -> (Process, T) {
    let mut process = Process(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs"));
    let (out, err) = (process.0.stdout.take().expect("piped"), process.0.stderr.take().expect("piped"));
    let mut lines: Box<dyn BufRead + Send> =
        if from_stderr { Box::new(BufReader::new(err)) } else { Box::new(BufReader::new(out)) };
    let mut line = String::new();
    let told = loop {
        line.clear();
        assert_ne!(lines.read_line(&mut line).expect("UTF-8"), 0, "it ended");
        if let Some(told) = serde_json::from_str(&line).ok().as_ref().and_then(&found) {
            break told;
        }
    };
    // It must not meet a full pipe.
    std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    (process, told)
}
