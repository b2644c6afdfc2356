//! Pure rules of delivery policies: their forms, timetables, breakers, holds and limits.

mod breaker;
mod calendar;
mod chart;
mod decide;
mod expression;
mod flow;
mod guide;
mod hold;
mod layer;
mod mass_gone;
mod payload_limit;
mod phased;
mod preview;
mod properties;
mod qstash;
mod reliability;
