//! The rules as callers use them.

#![allow(unreachable_pub, reason = "a test crate has no users")]

mod campaign_rules;
mod classification;
mod cron;
mod policy_rules;
mod retry_after;
mod schedule_properties;
