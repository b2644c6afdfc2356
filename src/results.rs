//! Results of campaigns, as the API shows them and webhooks are sent them.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use utoipa::ToSchema;

use bellwire_core::clock::Timestamp;
use bellwire_rules::campaign::lift::{self, Effect, Estimate, GroupSums, Lift};
use bellwire_rules::campaign::measurement::{AFTER_TEST, CONTROL, is_treated, sentence};
use bellwire_rules::campaign::plan::Plan;
use bellwire_store::measurement::conversions::{self, Attributed};
use bellwire_store::measurement::figures::{self, GroupFigures, MeasuredGroup};
use bellwire_store::measurement::periods::Measurement;

/// Kinds of conversions in a result. Those with the most people are shown.
const KINDS_MAX: usize = 20;
/// Currencies of a kind. Those with the most people are shown.
const CURRENCIES_MAX: usize = 10;

/// Achievements of a campaign in a period.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct CampaignResult {
    /// First run, or first person who entered.
    began_at: DateTime<Utc>,
    /// Time until which conversions count.
    closes_at: DateTime<Utc>,
    /// Whether that time is over, so that the result no longer changes.
    is_final: bool,
    /// The result in sentences, in English.
    summary: String,
    /// Deliveries that push services accepted.
    accepted: i64,
    /// Subscriptions of the app that browsers or the site ended in the period, for any reason.
    unsubscribed: i64,
    /// People in each group, whether or not a message reached them. Empty: the campaign has neither a control group nor variants.
    groups: Vec<ResultGroup>,
    /// Conversions by kind, at most 20 kinds.
    conversions: Vec<ConversionResult>,
}

/// People who are compared with each other.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct ResultGroup {
    /// Name of the variant, `control` for the control group, or `after_test` for those who get the winner of an A/B test.
    group: String,
    /// Number of people in the group.
    people: i64,
}

/// Conversions of one kind.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct ConversionResult {
    /// Kind of conversion, such as `order`.
    name: String,
    /// Conversions that are attributed to the campaign.
    attributed: AttributedConversions,
    /// Conversions of the people in each group, whether or not they are attributed.
    groups: Vec<GroupConversions>,
    /// Effect of the campaign. Null: it has no control group.
    lift: Option<LiftResult>,
}

/// Conversions that are attributed to a campaign.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct AttributedConversions {
    /// Number of attributed conversions.
    conversions: i64,
    /// Number of people with one.
    people: i64,
    /// Sum of the values in each currency.
    values: Vec<ConversionValue>,
}

/// Value of conversions in a currency.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct ConversionValue {
    /// Currency code (ISO 4217), such as `EUR`.
    currency: String,
    /// Sum of the values.
    value: f64,
    /// Sum of the values divided by the accepted deliveries. Null: there are none.
    per_delivery: Option<f64>,
}

/// Conversions of the people in a group.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct GroupConversions {
    /// Name of the group.
    group: String,
    /// People with at least one conversion.
    converted: i64,
    /// Number of the group's conversions.
    conversions: i64,
    /// Share of the group's people with a conversion. Null: the group is empty.
    rate: Option<f64>,
}

/// Difference between the people who were to get a campaign and its control group.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct LiftResult {
    /// Whether an effect is shown. Of 20 campaigns without one, at most one shows it for a kind, however often the result is looked at.
    effect: Effect,
    /// Relative difference: 0.1 is 10 % more. Null: unknown.
    relative: Option<Interval>,
    /// Conversions that the campaign caused. Too narrow with too few conversions. Null: a group is empty.
    additional: Option<Interval>,
    /// Further people needed to find a difference of 10 % in four of five campaigns. Null: none, or unknown.
    people_needed: Option<i64>,
    /// Value that the campaign caused, by currency.
    values: Vec<ValueLift>,
}

/// Value that a campaign caused.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct ValueLift {
    /// Currency code (ISO 4217), such as `EUR`.
    currency: String,
    /// Whether an effect is shown.
    effect: Effect,
    /// The value. Null: unknown.
    additional: Option<Interval>,
}

/// An estimate with its confidence interval of 95 %. It is wider until the result is final.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
pub(crate) struct Interval {
    /// Lower bound of the interval.
    low: f64,
    /// Most likely value.
    value: f64,
    /// Upper bound of the interval.
    high: f64,
    /// Standard error of the estimate. Null: a relative difference.
    standard_error: Option<f64>,
}

impl Interval {
    fn new(Estimate { low, value, high }: Estimate, standard_error: Option<f64>) -> Self {
        Self { low, value, high, standard_error }
    }
}

/// Reads the result of a period. A closed one is as it was when it was closed.
pub(crate) async fn read(pool: &PgPool, plan: &Plan, of: &Measurement, now: Timestamp) -> sqlx::Result<CampaignResult> {
    if let Some(result) = of.result.clone().and_then(|stored| serde_json::from_value(stored).ok()) {
        return Ok(result);
    }
    let span = (of.began_at, of.closes_at);
    let compared = async {
        let mut conn = pool.acquire().await?;
        let groups = figures::groups(&mut conn, of.id).await?;
        let counted = if groups.is_empty() { Vec::new() } else { figures::of_groups(&mut conn, of).await? };
        Ok((groups, counted))
    };
    // At the same time: both read all conversions.
    let ((groups, counted), attributed) = tokio::try_join!(compared, conversions::attributed(pool, of.campaign, span))?;
    let accepted = figures::accepted(pool, of.campaign, of.began_at).await?;
    let unsubscribed = figures::unsubscribed(pool, of.app, span).await?;
    let elapsed = elapsed(of.began_at, of.closes_at, now);
    let figures = Figures { plan, groups: &groups, counted: &counted, attributed: &attributed, accepted, elapsed };
    let (conversions, sentences): (Vec<_>, Vec<_>) = figures.kinds().iter().map(|name| figures.of_kind(name)).unzip();
    let shown = groups.iter().map(|group| ResultGroup { group: name_of(plan, group.part), people: group.people });
    Ok(CampaignResult {
        began_at: of.began_at,
        closes_at: of.closes_at,
        is_final: false,
        summary: if sentences.is_empty() { "No conversions.".to_owned() } else { sentences.join(" ") },
        accepted,
        unsubscribed,
        groups: shown.collect(),
        conversions,
    })
}

impl CampaignResult {
    /// Returns the result of a period that is closed now.
    pub(crate) fn closed(self) -> Self {
        Self { is_final: true, ..self }
    }
}

fn name_of(plan: &Plan, part: i16) -> String {
    let variant = || plan.variants.get(usize::try_from(part).ok()?).map(|variant| variant.name.clone());
    match part {
        CONTROL => "control".to_owned(),
        AFTER_TEST => "after_test".to_owned(),
        _ => variant().unwrap_or_default(),
    }
}

/// Figures of one campaign, from which its result is composed.
struct Figures<'a> {
    plan: &'a Plan,
    groups: &'a [MeasuredGroup],
    counted: &'a [GroupFigures],
    attributed: &'a [Attributed],
    accepted: i64,
    /// Elapsed share of the period.
    elapsed: f64,
}

impl Figures<'_> {
    /// Returns the kinds of conversions, those with the most people first.
    fn kinds(&self) -> Vec<&str> {
        let mut kinds = BTreeMap::<&str, i64>::new();
        for it in self.attributed.iter().filter(|it| it.currency.is_none()) {
            *kinds.entry(&it.name).or_default() += it.people;
        }
        for it in self.counted.iter().filter(|it| it.currency.is_none() && it.sums.converted > 0) {
            *kinds.entry(&it.name).or_default() += it.sums.converted;
        }
        let mut kinds: Vec<(&str, i64)> = kinds.into_iter().collect();
        kinds.sort_by_key(|(_, people)| std::cmp::Reverse(*people));
        kinds.into_iter().take(KINDS_MAX).map(|(name, _)| name).collect()
    }

    /// Returns the conversions of a kind, and the sentence about them.
    fn of_kind(&self, name: &str) -> (ConversionResult, String) {
        let attributed = self.attributed_of(name);
        let has_control = self.groups.iter().any(|group| group.part == CONTROL);
        let lift = has_control.then(|| self.lift(name, None));
        let values: Vec<(&str, Lift)> =
            self.currencies(name).into_iter().map(|currency| (currency, self.lift(name, Some(currency)))).collect();
        let text = match &lift {
            Some(lift) => sentence(name, lift, &values, self.elapsed >= 1.0),
            None => format!("{} conversions of `{name}` are attributed to it.", attributed.conversions),
        };
        let additional = |lift: &Lift| Some(Interval::new(lift.additional?, Some(lift.standard_error)));
        let value = |(currency, lift): &(&str, Lift)| ValueLift {
            currency: (*currency).to_owned(),
            effect: lift.effect,
            additional: additional(lift),
        };
        let lift = lift.map(|lift| LiftResult {
            effect: lift.effect,
            relative: lift.relative.map(|relative| Interval::new(relative, None)),
            additional: additional(&lift),
            people_needed: lift.people_needed,
            values: values.iter().map(value).collect(),
        });
        (ConversionResult { name: name.to_owned(), attributed, groups: self.groups_of(name), lift }, text)
    }

    fn attributed_of(&self, name: &str) -> AttributedConversions {
        let mut shown = AttributedConversions::default();
        for it in self.attributed.iter().filter(|it| it.name == name) {
            match &it.currency {
                None => (shown.conversions, shown.people) = (it.conversions, it.people),
                Some(_) if shown.values.len() >= CURRENCIES_MAX => {}
                Some(currency) => shown.values.push(ConversionValue {
                    currency: currency.clone(),
                    value: it.value,
                    per_delivery: (self.accepted > 0).then(|| it.value / self.accepted as f64),
                }),
            }
        }
        shown
    }

    fn groups_of(&self, name: &str) -> Vec<GroupConversions> {
        let of_group = |group: &MeasuredGroup| {
            let sums = self.sums(name, None, |part| part == group.part);
            GroupConversions {
                group: name_of(self.plan, group.part),
                converted: sums.converted,
                conversions: sums.y as i64,
                rate: (group.people > 0).then(|| sums.converted as f64 / group.people as f64),
            }
        };
        self.groups.iter().map(of_group).collect()
    }

    /// Returns the currencies of a kind, those with the most people first.
    fn currencies(&self, name: &str) -> Vec<&str> {
        let mut all = BTreeMap::<&str, i64>::new();
        for it in self.counted.iter().filter(|it| it.name == name) {
            *all.entry(it.currency.as_deref().unwrap_or_default()).or_default() += it.sums.converted;
        }
        all.remove("");
        let mut all: Vec<(&str, i64)> = all.into_iter().collect();
        all.sort_by_key(|(_, people)| std::cmp::Reverse(*people));
        all.into_iter().take(CURRENCIES_MAX).map(|(currency, _)| currency).collect()
    }

    /// Compares the number of conversions, or their value in a currency.
    fn lift(&self, name: &str, currency: Option<&str>) -> Lift {
        let treated = self.sums(name, currency, |part| is_treated(self.plan, part));
        let control = self.sums(name, currency, |part| part == CONTROL);
        lift::compare(&treated, &control, self.elapsed)
    }

    fn sums(&self, name: &str, currency: Option<&str>, is_in: impl Fn(i16) -> bool) -> GroupSums {
        let counted = self.counted.iter().filter(|it| it.name == name && it.currency.as_deref() == currency);
        let sums = counted.filter(|it| is_in(it.part)).map(|it| it.sums).fold(GroupSums::default(), GroupSums::and);
        let people = self.groups.iter().filter(|group| is_in(group.part)).map(|group| group.people).sum();
        GroupSums { people, ..sums }
    }
}

/// Achievements of an app's campaigns together in a quarter.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AppResult {
    /// Calendar quarter in UTC.
    quarter: String,
    /// Campaigns that began in it and have a control group, up to 200.
    campaigns: usize,
    /// Whether the results of all of them are final.
    is_final: bool,
    /// Conversions that the campaigns caused, by kind.
    conversions: Vec<CausedConversions>,
}

/// Conversions that campaigns caused: the sum of their estimates. Control groups are drawn independently, so the squares of the
/// errors are added.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CausedConversions {
    /// Kind of conversion, such as `order`.
    name: String,
    /// Currency of the values (ISO 4217). Null: the number of conversions.
    currency: Option<String>,
    /// Sum of the estimates.
    additional: Interval,
}

impl AppResult {
    /// Adds the results of campaigns with a control group.
    pub(crate) fn sum(quarter: String, results: &[CampaignResult], now: Timestamp) -> Self {
        let mut caused = BTreeMap::<(&str, Option<&str>), Vec<(f64, f64)>>::new();
        for it in results.iter().flat_map(|result| &result.conversions) {
            let Some(lift) = &it.lift else { continue };
            let values = lift.values.iter().map(|value| (Some(value.currency.as_str()), value.additional));
            for (currency, additional) in values.chain([(None, lift.additional)]) {
                let Some(Interval { value, standard_error: Some(error), .. }) = additional else { continue };
                caused.entry((&it.name, currency)).or_default().push((value, error));
            }
        }
        let elapsed = results.iter().map(|it| elapsed(it.began_at, it.closes_at, now)).fold(1.0, f64::min);
        let mut conversions = Vec::new();
        for ((name, currency), estimates) in caused {
            let error = estimates.iter().map(|(_, error)| error * error).sum::<f64>().sqrt();
            let Some(sum) = lift::sum(estimates.into_iter(), elapsed) else { continue };
            let (name, currency) = (name.to_owned(), currency.map(str::to_owned));
            conversions.push(CausedConversions { name, currency, additional: Interval::new(sum, Some(error)) });
        }
        let is_final = results.iter().all(|result| result.is_final);
        Self { quarter, campaigns: results.len(), is_final, conversions }
    }
}

/// Returns the elapsed share of a period.
fn elapsed(began_at: Timestamp, closes_at: Timestamp, now: Timestamp) -> f64 {
    (now - began_at).as_seconds_f64() / (closes_at - began_at).as_seconds_f64()
}
