"""The fields that `repr` must never show: they are credentials, or may contain some. The facts lack
this information, so the table is our own.
"""

SECRET_FIELDS = frozenset(
    {
        ("SaslAuthenticateRequest", "AuthBytes"),
        ("SaslAuthenticateResponse", "AuthBytes"),
        ("AlterUserScramCredentialsRequest", "Salt"),
        ("AlterUserScramCredentialsRequest", "SaltedPassword"),
        ("UserScramCredentialRecord", "Salt"),
        ("UserScramCredentialRecord", "StoredKey"),
        ("UserScramCredentialRecord", "ServerKey"),
        ("CreateDelegationTokenResponse", "Hmac"),
        ("RenewDelegationTokenRequest", "Hmac"),
        ("ExpireDelegationTokenRequest", "Hmac"),
        ("DescribeDelegationTokenResponse", "Hmac"),
        # Settings may hold passwords (ssl.key.password, sasl.jaas.config).
        ("AlterConfigsRequest", "Value"),
        ("IncrementalAlterConfigsRequest", "Value"),
        ("CreateTopicsRequest", "Value"),
        ("DescribeConfigsResponse", "Value"),
        ("ConfigRecord", "Value"),
        # A forwarded request can be any of the above.
        ("EnvelopeRequest", "RequestData"),
        ("EnvelopeRequest", "RequestPrincipal"),
        ("EnvelopeResponse", "ResponseData"),
    }
)
