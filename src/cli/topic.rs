//! `bellwire topic`: topics and their subscriptions.

use clap::builder::PossibleValue;

use super::output::{TableColumn, columns, time};
use super::verb::{Group, app, group, json_or_file, option, positional, verb, word};

pub(super) fn topic() -> Group {
    let topic = || [positional("TOPIC", "{topic}", "Name: letters, digits and any of _.~%-"), app()];
    let join = || {
        let anyone = PossibleValue::new("anyone").help("Browsers, of their own accord, and servers");
        option("--join <JOIN>", "/join", "Clients that may join and leave the topic").one_of([anyone, "server".into()])
    };
    let policy =
        json_or_file("--policy <POLICY>", "/policy", "Delivery policy of messages to it: JSON, or @FILE").is(word());
    let verbs = [
        verb("create", "PUT /apps/{app}/topics/{topic}", "Create a topic")
            .takes(topic())
            .takes([join().default("anyone"), policy])
            .header("If-None-Match", "*")
            .fields(FIELDS)
            .examples([
                "bellwire topic create news --app shop",
                "bellwire topic create staff --app shop --join server",
                "bellwire topic create orders --app shop --policy @policy.json",
            ]),
        verb("list", "GET /apps/{app}/topics", "List an app's topics").takes([app()]).list(COLUMNS),
        verb("change", "PATCH /apps/{app}/topics/{topic}", "Change who may join a topic. Current subscribers stay")
            .takes(topic())
            .takes([join().required()])
            .fields(FIELDS)
            .examples(["bellwire topic change staff --app shop --join server"]),
        verb(
            "delete",
            "DELETE /apps/{app}/topics/{topic}",
            "Remove a topic and its policy. The subscriptions that were in it stay, without it",
        )
        .takes(topic())
        .deleted("name", "TOPIC", "The topic {TOPIC} is gone."),
    ];
    group("topic", "Create, list, change and delete topics", verbs)
}

const FIELDS: &[TableColumn] = columns! {
    "topic" => "/name", "may be joined by" => "/join", "made by" => "/made_by", "members" => "/members", "created" time => "/created_at",
};
const COLUMNS: &[TableColumn] = columns! {
    "TOPIC" => "/name", "JOIN" => "/join", "MADE BY" => "/made_by", "MEMBERS" => "/members", "CREATED" time => "/created_at",
};
