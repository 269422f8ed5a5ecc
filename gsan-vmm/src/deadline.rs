//! When a time limit ends.

use std::time::{Duration, Instant};

/// The end of `limit` from now; for limits beyond what the clock can say, some time in the next
/// century.
pub(crate) fn after(limit: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    Instant::now() + limit.min(CENTURY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limit_is_too_long() {
        assert!(after(Duration::MAX) > Instant::now() + Duration::from_secs(1 << 30));
        assert!(after(Duration::ZERO) <= Instant::now());
    }
}
