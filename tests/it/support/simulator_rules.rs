//! Rules of the push-service simulator, and the requests that they hold.

use bellwire_core::lane::Gateway;
use bellwire_simulator::gateways::{Rule, RuleAction, SimulatorReport};
use tokio::time::timeout;

use super::TestApp;
use super::app::PATIENCE;

/// A rule for the requests to one gateway.
pub fn rule_for(gateway: Gateway, action: RuleAction) -> Rule {
    Rule { gateway: Some(gateway), ..Rule::always(action) }
}

/// Initial permits of a recognised gateway's lane, less the permit reserved for transactional deliveries.
pub const IN_FLIGHT: u64 = 31;

/// Adds a rule that holds every request, and returns its id.
pub fn hold_all(app: &TestApp) -> u64 {
    app.simulator.add_rule(Rule::always(RuleAction::Hold)).unwrap()
}

/// Releases the requests that a rule holds, and waits until all work is done.
pub async fn release_until_idle(app: &TestApp, rule: u64) {
    assert!(app.simulator.release(rule, 1_000_000));
    app.run_until_idle().await;
}

/// Lets this number of requests through and holds further ones. Returns the ids of both rules.
pub fn hold_after(app: &TestApp, through: u64) -> [u64; 2] {
    let rules = [Rule { count: Some(through), ..Rule::default() }, Rule::always(RuleAction::Hold)];
    rules.map(|rule| app.simulator.add_rule(rule).expect("a rule"))
}

/// Removes these rules, and so releases the requests that they hold.
pub fn release(app: &TestApp, rules: [u64; 2]) {
    for rule in rules {
        assert!(app.simulator.remove_rule(rule), "a rule in force");
    }
}

/// Requests that rules hold at present.
pub fn held(report: &SimulatorReport) -> u64 {
    report.rules.iter().map(|rule| rule.held).sum()
}

/// Waits until the simulator's report meets the condition.
pub async fn until_report(app: &TestApp, wanted: impl Fn(&SimulatorReport) -> bool) -> SimulatorReport {
    let waited = timeout(PATIENCE, app.simulator.wait_until(wanted)).await;
    waited.unwrap_or_else(|_| panic!("this never came about; it stands at {:#?}", app.simulator.report()))
}
