//! Parameters of the Rust calls that an error can name.

numbered! {
    /// Parameter that an INVALID_PARAMETER error is about, or a field of its struct.
    ///
    /// The name is that of the Rust call; the subtype has the position in the C call.
    #[non_exhaustive]
    pub enum Parameter: u8 {
        /// No parameter is named.
        None = 0,
        /// `attributes` of an endpoint or a shared receive queue.
        Attributes = 1,
        /// `ep`.
        Ep = 2,
        /// `evd`.
        Evd = 3,
        /// `fields` of a query or a modification.
        Fields = 4,
        /// `flags`.
        Flags = 5,
        /// `hard`, a watermark.
        Hard = 6,
        /// `low_watermark`.
        LowWatermark = 7,
        /// `memory` of a region.
        Memory = 8,
        /// `min_qlen`, the length of a dispatcher's queue.
        MinQlen = 9,
        /// `private_data`.
        PrivateData = 10,
        /// `privileges`.
        Privileges = 11,
        /// `pz`.
        Pz = 12,
        /// `qualifier` of a connection.
        Qualifier = 13,
        /// `quality` of service.
        Quality = 14,
        /// `remote`, a remote range.
        Remote = 15,
        /// `segment` of a bind.
        Segment = 16,
        /// `segments`.
        Segments = 17,
        /// `max_recv_dtos`, the size of a shared receive queue.
        MaxRecvDtos = 18,
        /// `soft`, a watermark.
        Soft = 19,
        /// `threshold` of a wait.
        Threshold = 20,
        /// `timeout`.
        Timeout = 21,
        /// `wanted`, the parameters of a modification.
        Wanted = 22,
        /// `ia`, the fields of the adapter.
        Ia = 23,
        /// `provider`, the fields of its provider.
        Provider = 24,
    }
}

impl Parameter {
    /// Returns the name of the parameter; empty for `None`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Attributes => "attributes",
            Self::Ep => "ep",
            Self::Evd => "evd",
            Self::Fields => "fields",
            Self::Flags => "flags",
            Self::Hard => "hard",
            Self::LowWatermark => "low_watermark",
            Self::Memory => "memory",
            Self::MinQlen => "min_qlen",
            Self::PrivateData => "private_data",
            Self::Privileges => "privileges",
            Self::Pz => "pz",
            Self::Qualifier => "qualifier",
            Self::Quality => "quality",
            Self::Remote => "remote",
            Self::Segment => "segment",
            Self::Segments => "segments",
            Self::MaxRecvDtos => "max_recv_dtos",
            Self::Soft => "soft",
            Self::Threshold => "threshold",
            Self::Timeout => "timeout",
            Self::Wanted => "wanted",
            Self::Ia => "ia",
            Self::Provider => "provider",
        }
    }
}
