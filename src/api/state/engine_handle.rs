//! Connection between the API and the dispatch of the same process.

use std::sync::Arc;

use tokio::time::Instant;
use uuid::Uuid;

use bellwire_rules::policy::lane_state::LaneState;
use bellwire_store::queue::flows::Flow;
use bellwire_store::queue::sending::Born;
use bellwire_store::queue::stops::Stop;

/// Work that the API passes to dispatch.
#[derive(Debug)]
pub enum Work {
    /// A request arrived that may lead to sending: dispatch leaves its idle mode.
    Asked,
    /// Deliveries became due: dispatch claims them now.
    Due,
    /// Deliveries were stored with a lease of this process: dispatch sends them.
    Born {
        /// Lease of the rows.
        lease: Uuid,
        /// Start of the lease.
        since: Instant,
        /// Leased rows.
        rows: Vec<Born>,
    },
    /// Stop, to be applied before the response.
    Stop(Stop),
    /// Orders to lanes, to be applied before the response.
    Orders(Vec<LaneState>),
    /// Flow control from now on, to be applied before the response.
    Flow(Flow),
}

/// Connection to this process's dispatch. A process without dispatch only writes to the database.
#[derive(Clone)]
pub struct EngineHandle {
    /// Function that passes work to dispatch.
    pub tell: Arc<dyn Fn(Work) + Send + Sync>,
    /// Function that returns a new lease for deliveries to single subscriptions, if dispatch has room in memory. [`Work::Born`]
    /// uses the lease. Otherwise it expires.
    pub lease: Arc<dyn Fn() -> Option<Uuid> + Send + Sync>,
}

impl EngineHandle {
    /// Returns a handle for processes without dispatch.
    pub fn none() -> Self {
        Self { tell: Arc::new(|_| {}), lease: Arc::new(|| None) }
    }
}
