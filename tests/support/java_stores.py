"""Key stores made with OpenJDK's keytool, with the password `changeit`.

    keytool -genkeypair -alias app -keyalg EC -groupname secp256r1 -dname CN=app -validity 36500 \
        -storetype JKS -keystore client.jks -storepass changeit -keypass keypass

`client.p12` has the same key and certificate. `trust.jks`, `trust.p12` and `trust.jceks` have only
the certificate, like `cacerts.p12`, which has no password, like the cacerts of a JDK.
"""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

_STORES = {
    "client.jks": (
        "/u3+7QAAAAIAAAABAAAAAQADYXBwAAABohSbP2sAAAB/MH0wDgYKKwYBBAEqAhEBAQUABGsxCpx8MYxkSVeTYYtv"
        "Psglt7wy2ZIEW15UpViLNwR8sbMoLN+V9+YGntjpz8IjWGKdLEegb4STbU36jgozeYYiUkpDC+4lXXyew4l62Kki"
        "uvZ8mNSAvSu+mK8mqWzD00LTXZ7H8h1PFpiI+AAAAAEABVguNTA5AAABOTCCATUwgdugAwIBAgIIRXDdo1nTm1Mw"
        "CgYIKoZIzj0EAwIwDjEMMAoGA1UEAxMDYXBwMCAXDTI2MTEyNTIxMjcyOFoYDzIxMjYxMTAxMjEyNzI4WjAOMQww"
        "CgYDVQQDEwNhcHAwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARNOpwdmC+DZwLhclN2LNJDYIczUvvqlld+tnAa"
        "HKlOF6DTm8w2rAxmIL54o2ZMcrjuJS90xSnYgNonohQL6S+IoyEwHzAdBgNVHQ4EFgQUQP6uSjN7sq7wxspHIexc"
        "5cgU3FwwCgYIKoZIzj0EAwIDSQAwRgIhAIIz5FTeYqJDoJu2uyeKE1HA9n+TUx8M71KwXmt2NwVzAiEAl0uljUJk"
        "xiRPDNKq3D2IPo1Z8FPY7TbMituIOife9FaDYrtslekTmtUAcCWFk438THsnRQ=="
    ),
    "client.p12": (
        "MIID2gIBAzCCA4QGCSqGSIb3DQEHAaCCA3UEggNxMIIDbTCCASQGCSqGSIb3DQEHAaCCARUEggERMIIBDTCCAQkG"
        "CyqGSIb3DQEMCgECoIG9MIG6MGYGCSqGSIb3DQEFDTBZMDgGCSqGSIb3DQEFDDArBBT8Du0Lyvn20Lxeb14rPT/I"
        "Uu8sDAICJxACASAwDAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEJc92fHz6RVJlmRouqY5P+oEUJeot1aFxl7c"
        "+/gVSUeWYNgH380a0yrYSLtdJRfVCnfsLfysTvGYzh29hcPcZ2z84eKNtiBwnTp1hJIFgxHLVw/eIGvfxTP/h9oZ"
        "rArZKPliMTowFQYJKoZIhvcNAQkUMQgeBgBhAHAAcDAhBgkqhkiG9w0BCRUxFAQSVGltZSAxNzk1NjQyMDQ4NjI0"
        "MIICQQYJKoZIhvcNAQcGoIICMjCCAi4CAQAwggInBgkqhkiG9w0BBwEwZgYJKoZIhvcNAQUNMFkwOAYJKoZIhvcN"
        "AQUMMCsEFOKtPAetnG/A0WYOd4XiwsJiHefMAgInEAIBIDAMBggqhkiG9w0CCQUAMB0GCWCGSAFlAwQBKgQQudUJ"
        "sgW6/H7DK6XohmzvwoCCAbDdW6RmdVt/EgBYZx/OQmPCdr2Fr8S3qjyTYY7/cRdVkdWvplGsNhb7IZp0jJsJmID7"
        "4sarQCNs9/Qu3IN1FzlpMgjP5sOV6wePJkieRpntFCYjW5OCumM7fiYuC3jD0nbsmrnLEh/57VAM5hdJytPj1baP"
        "ukTTP9gNId7me03j2BNECR4NLUPvD1e89MFrpIoy26EPIO1D+80a3g3lqyZV5m0myiTzcSQ6wjM21S8M1JfPQ84U"
        "CbCClkcjes46HfBl1Z5pzunxpNBBXG2O4W/UejdcJu5QB6G1CpmJIUP1kTFY6fKByJLuU8Q/tfsBlKNrUHNdtSOH"
        "VcgTfaRQ0dKDoS+b12hX6h3PZFJEaEd9USKPkQRegFUSL+xWKxmW2dOzi+4WjXOm/VlLwOLxe5mUy0bGGD0JgJ4U"
        "GpwqJ1wR+W/8pcE+V/nK2aN4OOTOL7TsTEGuzQNMOmf6uALurFzHqtavM1es9yvV8kyiuYOY66wxBLXu7l8WBr7w"
        "KiK1NcIkY2bcHiN0IOZOxiwpFyjlAnaYQVz/i2x8QaomcbsqWMB1oHXLroXJGuhfwFLLu5gwTTAxMA0GCWCGSAFl"
        "AwQCAQUABCBqiRdQjO3ExN2fNzwDnMJurlXQRtl+my/tNguvY16pZQQUF9VXVa0z4dYUFcbrYOO/uq5wwgMCAicQ"
    ),
    "trust.jks": (
        "/u3+7QAAAAIAAAABAAAAAgACY2EAAAGiFJtDZAAFWC41MDkAAAE5MIIBNTCB26ADAgECAghFcN2jWdObUzAKBggq"
        "hkjOPQQDAjAOMQwwCgYDVQQDEwNhcHAwIBcNMjYxMTI1MjEyNzI4WhgPMjEyNjExMDEyMTI3MjhaMA4xDDAKBgNV"
        "BAMTA2FwcDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABE06nB2YL4NnAuFyU3Ys0kNghzNS++qWV362cBocqU4X"
        "oNObzDasDGYgvnijZkxyuO4lL3TFKdiA2ieiFAvpL4ijITAfMB0GA1UdDgQWBBRA/q5KM3uyrvDGykch7FzlyBTc"
        "XDAKBggqhkjOPQQDAgNJADBGAiEAgjPkVN5iokOgm7a7J4oTUcD2f5NTHwzvUrBea3Y3BXMCIQCXS6WNQmTGJE8M"
        "0qrcPYg+jVnwU9jtNsyK24g6J970VmACCscyAOK0oHjHO22ZLVZapRlf"
    ),
    "trust.p12": (
        "MIICogIBAzCCAkwGCSqGSIb3DQEHAaCCAj0EggI5MIICNTCCAjEGCSqGSIb3DQEHBqCCAiIwggIeAgEAMIICFwYJ"
        "KoZIhvcNAQcBMGYGCSqGSIb3DQEFDTBZMDgGCSqGSIb3DQEFDDArBBTmf1f/fCpLVKy+cdKGqYKXqpAm7QICJxAC"
        "ASAwDAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEE47ZXjcZZ13ViPWXyNvGk6AggGgbt2Yn4to83SnCQIJu8ft"
        "7xR5mJMBXm5F5LiIU4wc5+7lZtZJABmJqBl9N5UsiQwnMeuS0Yt5mV3IMkPRMeEthFPnBCOzxrVVsed03rGZJ9x0"
        "nNYWApuXrbGgSZErhnqktYuMZpa/UE6vjNnnDdwCB9NT7p9RuCh9IuCjMcy5h4EATMAwuqWKZk/uRc8pO26ZnoQD"
        "tUX1Q5S9boYoYTjlBFbD107XGUo7KuHnX/zrKxunH5TE5hRehabE9Frpu/zyIh8Fi6Dq34Z8FSfHsH/I4UsRf/zP"
        "QSAi5lU9KITDbe8Des2M7pmLmBmJMyJ2BxGRCUezmPcrtwowoLR2DWCEufH1luWTXyOp5tIyw1JEG8ZBvHOXaRDH"
        "GjCsmMKZ117C9PZE1INlME6EgkbojUclcRKfH7o8sL0yQZhRpp+avFAdwiDcPae0+/ojkdJW21h/5IVFVsZHnd1x"
        "/uxQSmR5EOX3YT+rV7edHkhcEVw45R/eaOs27h/waoZZyljWQ3odXeS0JkRSzzYzoHFVmU5MRhO/2VkAlJcyXzCH"
        "QBvi/VwwTTAxMA0GCWCGSAFlAwQCAQUABCAcjX/tD3Bs26eAt1omE21Pdx8IvBBZZ/lFLMEVaVKFJAQUhBv3k26b"
        "oYCt5laDjhnou55zrsYCAicQ"
    ),
    "trust.jceks": (
        "zs7OzgAAAAIAAAABAAAAAgACY2EAAAGiFJtHQgAFWC41MDkAAAE5MIIBNTCB26ADAgECAghFcN2jWdObUzAKBggq"
        "hkjOPQQDAjAOMQwwCgYDVQQDEwNhcHAwIBcNMjYxMTI1MjEyNzI4WhgPMjEyNjExMDEyMTI3MjhaMA4xDDAKBgNV"
        "BAMTA2FwcDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABE06nB2YL4NnAuFyU3Ys0kNghzNS++qWV362cBocqU4X"
        "oNObzDasDGYgvnijZkxyuO4lL3TFKdiA2ieiFAvpL4ijITAfMB0GA1UdDgQWBBRA/q5KM3uyrvDGykch7FzlyBTc"
        "XDAKBggqhkjOPQQDAgNJADBGAiEAgjPkVN5iokOgm7a7J4oTUcD2f5NTHwzvUrBea3Y3BXMCIQCXS6WNQmTGJE8M"
        "0qrcPYg+jVnwU9jtNsyK24g6J970Vu8+vGZSGiccqBWnePfoca8p+6Vj"
    ),
    "cacerts.p12": (
        "MIIBzgIBAzCCAccGCSqGSIb3DQEHAaCCAbgEggG0MIIBsDCCAawGCSqGSIb3DQEHAaCCAZ0EggGZMIIBlTCCAZEG"
        "CyqGSIb3DQEMCgEDoIIBUTCCAU0GCiqGSIb3DQEJFgGgggE9BIIBOTCCATUwgdugAwIBAgIIRXDdo1nTm1MwCgYI"
        "KoZIzj0EAwIwDjEMMAoGA1UEAxMDYXBwMCAXDTI2MTEyNTIxMjcyOFoYDzIxMjYxMTAxMjEyNzI4WjAOMQwwCgYD"
        "VQQDEwNhcHAwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARNOpwdmC+DZwLhclN2LNJDYIczUvvqlld+tnAaHKlO"
        "F6DTm8w2rAxmIL54o2ZMcrjuJS90xSnYgNonohQL6S+IoyEwHzAdBgNVHQ4EFgQUQP6uSjN7sq7wxspHIexc5cgU"
        "3FwwCgYIKoZIzj0EAwIDSQAwRgIhAIIz5FTeYqJDoJu2uyeKE1HA9n+TUx8M71KwXmt2NwVzAiEAl0uljUJkxiRP"
        "DNKq3D2IPo1Z8FPY7TbMituIOife9FYxLTATBgkqhkiG9w0BCRQxBh4EAGMAYTAWBgxghkgBhvlmrcp7AQExBgYE"
        "VR0lAA=="
    ),
}
NAMES = tuple(_STORES)


def store(folder: Path, name: str) -> str:
    """Write a store to a folder, and return its path."""
    path = folder / name
    path.write_bytes(b64decode(_STORES[name]))
    return str(path)
