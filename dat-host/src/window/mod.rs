//! Memory that peers access.

mod bind;
mod endpoint_window;
mod exposed;
mod read_window;
mod zone_window;

pub use endpoint_window::{Expose, Exposing, Revoke, Window};
pub use exposed::Exposed;
pub use read_window::{ExposeRead, ExposingRead, ReadWindow, RevokeRead};
pub use zone_window::ZoneWindow;
