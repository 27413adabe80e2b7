// Written by npm run examples: what a real server answered to test/support/story.ts. Do not edit.

export interface Example {
  /** The request's body; left out where there is none. */
  request?: unknown;
  /** The answer's, with 200. */
  response: unknown;
}

// biome-ignore format: as it was written
export const examples: Record<string, Example> = {
  "apis.createApi": {
    "request": {
      "name": "payments"
    },
    "response": {
      "meta": {
        "requestId": "req_Example1"
      },
      "data": {
        "apiId": "api_Example1"
      }
    }
  },
  "apis.getApi": {
    "request": {
      "apiId": "api_Example1"
    },
    "response": {
      "meta": {
        "requestId": "req_Example2"
      },
      "data": {
        "id": "api_Example1",
        "name": "payments"
      }
    }
  },
  "permissions.createPermission": {
    "request": {
      "name": "Read documents",
      "slug": "documents.read",
      "description": "May open any document."
    },
    "response": {
      "meta": {
        "requestId": "req_Example3"
      },
      "data": {
        "permissionId": "perm_Example1"
      }
    }
  },
  "permissions.getPermission": {
    "request": {
      "permission": "documents.read"
    },
    "response": {
      "meta": {
        "requestId": "req_Example4"
      },
      "data": {
        "id": "perm_Example1",
        "name": "Read documents",
        "slug": "documents.read",
        "description": "May open any document."
      }
    }
  },
  "permissions.createRole": {
    "request": {
      "name": "editor",
      "description": "Reads and writes documents.",
      "permissions": [
        "documents.read"
      ]
    },
    "response": {
      "meta": {
        "requestId": "req_Example5"
      },
      "data": {
        "roleId": "role_Example1"
      }
    }
  },
  "permissions.setRolePermissions": {
    "request": {
      "roleId": "role_Example1",
      "permissions": [
        "documents.read",
        "documents.write"
      ]
    },
    "response": {
      "meta": {
        "requestId": "req_Example6"
      },
      "data": [
        {
          "id": "perm_Example1",
          "name": "Read documents",
          "slug": "documents.read",
          "description": "May open any document."
        },
        {
          "id": "perm_Example2",
          "name": "documents.write",
          "slug": "documents.write"
        }
      ]
    }
  },
  "permissions.getRole": {
    "request": {
      "role": "editor"
    },
    "response": {
      "meta": {
        "requestId": "req_Example7"
      },
      "data": {
        "id": "role_Example1",
        "name": "editor",
        "description": "Reads and writes documents.",
        "permissions": [
          {
            "id": "perm_Example1",
            "name": "Read documents",
            "slug": "documents.read",
            "description": "May open any document."
          },
          {
            "id": "perm_Example2",
            "name": "documents.write",
            "slug": "documents.write"
          }
        ]
      }
    }
  },
  "permissions.listPermissions": {
    "request": {
      "limit": 10
    },
    "response": {
      "meta": {
        "requestId": "req_Example8"
      },
      "data": [
        {
          "id": "perm_Example1",
          "name": "Read documents",
          "slug": "documents.read",
          "description": "May open any document."
        },
        {
          "id": "perm_Example2",
          "name": "documents.write",
          "slug": "documents.write"
        }
      ],
      "pagination": {
        "hasMore": false
      }
    }
  },
  "permissions.listRoles": {
    "request": {
      "search": "edit"
    },
    "response": {
      "meta": {
        "requestId": "req_Example9"
      },
      "data": [
        {
          "id": "role_Example1",
          "name": "editor",
          "description": "Reads and writes documents.",
          "permissions": [
            {
              "id": "perm_Example1",
              "name": "Read documents",
              "slug": "documents.read",
              "description": "May open any document."
            },
            {
              "id": "perm_Example2",
              "name": "documents.write",
              "slug": "documents.write"
            }
          ]
        }
      ],
      "pagination": {
        "hasMore": false
      }
    }
  },
  "identities.createIdentity": {
    "request": {
      "externalId": "ada",
      "meta": {
        "plan": "pro"
      },
      "ratelimits": [
        {
          "name": "tokens",
          "limit": 20000,
          "duration": 3600000
        }
      ]
    },
    "response": {
      "meta": {
        "requestId": "req_Example10"
      },
      "data": {
        "identityId": "id_Example1"
      }
    }
  },
  "identities.getIdentity": {
    "request": {
      "identity": "ada"
    },
    "response": {
      "meta": {
        "requestId": "req_Example11"
      },
      "data": {
        "id": "id_Example1",
        "externalId": "ada",
        "meta": {
          "plan": "pro"
        },
        "ratelimits": [
          {
            "id": "rl_Example1",
            "name": "tokens",
            "limit": 20000,
            "duration": 3600000,
            "autoApply": false
          }
        ]
      }
    }
  },
  "identities.listIdentities": {
    "request": {
      "search": "ad"
    },
    "response": {
      "meta": {
        "requestId": "req_Example12"
      },
      "data": [
        {
          "id": "id_Example1",
          "externalId": "ada",
          "meta": {
            "plan": "pro"
          },
          "ratelimits": [
            {
              "id": "rl_Example1",
              "name": "tokens",
              "limit": 20000,
              "duration": 3600000,
              "autoApply": false
            }
          ]
        }
      ],
      "pagination": {
        "hasMore": false
      }
    }
  },
  "identities.updateIdentity": {
    "request": {
      "identity": "ada",
      "meta": {
        "plan": "enterprise"
      }
    },
    "response": {
      "meta": {
        "requestId": "req_Example13"
      },
      "data": {
        "id": "id_Example1",
        "externalId": "ada",
        "meta": {
          "plan": "enterprise"
        },
        "ratelimits": [
          {
            "id": "rl_Example1",
            "name": "tokens",
            "limit": 20000,
            "duration": 3600000,
            "autoApply": false
          }
        ]
      }
    }
  },
  "keys.createKey": {
    "request": {
      "apiId": "api_Example1",
      "prefix": "pay",
      "name": "Ada's laptop",
      "externalId": "ada",
      "meta": {
        "team": "research"
      },
      "expires": 1798761600000,
      "credits": {
        "remaining": 1000,
        "refill": {
          "interval": "monthly",
          "amount": 1000,
          "refillDay": 1
        }
      },
      "ratelimits": [
        {
          "name": "requests",
          "limit": 100,
          "duration": 60000,
          "autoApply": true
        }
      ],
      "roles": [
        "editor"
      ],
      "permissions": [
        "invoices.read"
      ]
    },
    "response": {
      "meta": {
        "requestId": "req_Example14"
      },
      "data": {
        "keyId": "key_Example1",
        "key": "pay_Example1Example1Example1Exam"
      }
    }
  },
  "keys.verifyKey": {
    "request": {
      "key": "pay_Example1Example1Example1Exam",
      "permissions": "documents.read AND invoices.read",
      "credits": {
        "cost": 5
      },
      "ratelimits": [
        {
          "name": "tokens",
          "cost": 350
        }
      ],
      "tags": [
        "path=/v1/answers"
      ]
    },
    "response": {
      "meta": {
        "requestId": "req_Example15"
      },
      "data": {
        "valid": true,
        "code": "VALID",
        "keyId": "key_Example1",
        "enabled": true,
        "name": "Ada's laptop",
        "meta": {
          "team": "research"
        },
        "expires": 1798761600000,
        "permissions": [
          "invoices.read",
          "documents.read",
          "documents.write"
        ],
        "roles": [
          "editor"
        ],
        "identity": {
          "id": "id_Example1",
          "externalId": "ada",
          "meta": {
            "plan": "enterprise"
          },
          "ratelimits": [
            {
              "id": "rl_Example1",
              "name": "tokens",
              "limit": 20000,
              "duration": 3600000,
              "autoApply": false
            }
          ]
        },
        "credits": 995,
        "ratelimits": [
          {
            "id": "rl_Example2",
            "name": "requests",
            "limit": 100,
            "duration": 60000,
            "autoApply": true,
            "exceeded": false,
            "remaining": 99,
            "reset": 1768478475397
          },
          {
            "id": "rl_Example1",
            "name": "tokens",
            "limit": 20000,
            "duration": 3600000,
            "autoApply": false,
            "exceeded": false,
            "remaining": 19650,
            "reset": 1768482056250
          }
        ]
      }
    }
  },
  "keys.whoami": {
    "request": {
      "key": "pay_Example1Example1Example1Exam"
    },
    "response": {
      "meta": {
        "requestId": "req_Example16"
      },
      "data": {
        "keyId": "key_Example1",
        "apiId": "api_Example1",
        "start": "pay_Exam",
        "enabled": true,
        "createdAt": 1768478414000,
        "prefix": "pay",
        "name": "Ada's laptop",
        "meta": {
          "team": "research"
        },
        "expires": 1798761600000,
        "lastUsedAt": 1768478415000,
        "permissions": [
          "invoices.read",
          "documents.read",
          "documents.write"
        ],
        "roles": [
          "editor"
        ],
        "credits": {
          "remaining": 995,
          "refill": {
            "interval": "monthly",
            "amount": 1000,
            "refillDay": 1
          }
        },
        "externalId": "ada",
        "identity": {
          "id": "id_Example1",
          "externalId": "ada",
          "meta": {
            "plan": "enterprise"
          },
          "ratelimits": [
            {
              "id": "rl_Example1",
              "name": "tokens",
              "limit": 20000,
              "duration": 3600000,
              "autoApply": false
            }
          ]
        },
        "ratelimits": [
          {
            "id": "rl_Example2",
            "name": "requests",
            "limit": 100,
            "duration": 60000,
            "autoApply": true
          }
        ]
      }
    }
  },
  "keys.getKey": {
    "request": {
      "keyId": "key_Example1"
    },
    "response": {
      "meta": {
        "requestId": "req_Example17"
      },
      "data": {
        "keyId": "key_Example1",
        "apiId": "api_Example1",
        "start": "pay_Exam",
        "enabled": true,
        "createdAt": 1768478414000,
        "prefix": "pay",
        "name": "Ada's laptop",
        "meta": {
          "team": "research"
        },
        "expires": 1798761600000,
        "lastUsedAt": 1768478415000,
        "permissions": [
          "invoices.read",
          "documents.read",
          "documents.write"
        ],
        "roles": [
          "editor"
        ],
        "credits": {
          "remaining": 995,
          "refill": {
            "interval": "monthly",
            "amount": 1000,
            "refillDay": 1
          }
        },
        "externalId": "ada",
        "identity": {
          "id": "id_Example1",
          "externalId": "ada",
          "meta": {
            "plan": "enterprise"
          },
          "ratelimits": [
            {
              "id": "rl_Example1",
              "name": "tokens",
              "limit": 20000,
              "duration": 3600000,
              "autoApply": false
            }
          ]
        },
        "ratelimits": [
          {
            "id": "rl_Example2",
            "name": "requests",
            "limit": 100,
            "duration": 60000,
            "autoApply": true
          }
        ]
      }
    }
  },
  "apis.listKeys": {
    "request": {
      "apiId": "api_Example1",
      "externalId": "ada",
      "limit": 10
    },
    "response": {
      "meta": {
        "requestId": "req_Example18"
      },
      "data": [
        {
          "keyId": "key_Example1",
          "apiId": "api_Example1",
          "start": "pay_Exam",
          "enabled": true,
          "createdAt": 1768478414000,
          "prefix": "pay",
          "name": "Ada's laptop",
          "meta": {
            "team": "research"
          },
          "expires": 1798761600000,
          "lastUsedAt": 1768478415000,
          "permissions": [
            "invoices.read",
            "documents.read",
            "documents.write"
          ],
          "roles": [
            "editor"
          ],
          "credits": {
            "remaining": 995,
            "refill": {
              "interval": "monthly",
              "amount": 1000,
              "refillDay": 1
            }
          },
          "externalId": "ada",
          "identity": {
            "id": "id_Example1",
            "externalId": "ada",
            "meta": {
              "plan": "enterprise"
            },
            "ratelimits": [
              {
                "id": "rl_Example1",
                "name": "tokens",
                "limit": 20000,
                "duration": 3600000,
                "autoApply": false
              }
            ]
          },
          "ratelimits": [
            {
              "id": "rl_Example2",
              "name": "requests",
              "limit": 100,
              "duration": 60000,
              "autoApply": true
            }
          ]
        }
      ],
      "pagination": {
        "hasMore": false
      }
    }
  },
  "keys.updateKey": {
    "request": {
      "keyId": "key_Example1",
      "name": "Ada's desktop",
      "meta": {
        "team": "production"
      },
      "expires": null
    },
    "response": {
      "meta": {
        "requestId": "req_Example19"
      },
      "data": {}
    }
  },
  "keys.updateCredits": {
    "request": {
      "keyId": "key_Example1",
      "operation": "increment",
      "value": 500
    },
    "response": {
      "meta": {
        "requestId": "req_Example20"
      },
      "data": {
        "remaining": 1495,
        "refill": {
          "interval": "monthly",
          "amount": 1000,
          "refillDay": 1
        }
      }
    }
  },
  "keys.addPermissions": {
    "request": {
      "keyId": "key_Example1",
      "permissions": [
        "invoices.write"
      ]
    },
    "response": {
      "meta": {
        "requestId": "req_Example21"
      },
      "data": [
        {
          "id": "perm_Example3",
          "name": "invoices.read",
          "slug": "invoices.read"
        },
        {
          "id": "perm_Example4",
          "name": "invoices.write",
          "slug": "invoices.write"
        }
      ]
    }
  },
  "keys.setPermissions": {
    "request": {
      "keyId": "key_Example1",
      "permissions": [
        "invoices.read",
        "reports.read"
      ]
    },
    "response": {
      "meta": {
        "requestId": "req_Example22"
      },
      "data": [
        {
          "id": "perm_Example3",
          "name": "invoices.read",
          "slug": "invoices.read"
        },
        {
          "id": "perm_Example5",
          "name": "reports.read",
          "slug": "reports.read"
        }
      ]
    }
  },
  "keys.removePermissions": {
    "request": {
      "keyId": "key_Example1",
      "permissions": [
        "reports.read"
      ]
    },
    "response": {
      "meta": {
        "requestId": "req_Example23"
      },
      "data": [
        {
          "id": "perm_Example3",
          "name": "invoices.read",
          "slug": "invoices.read"
        }
      ]
    }
  },
  "keys.setRoles": {
    "request": {
      "keyId": "key_Example1",
      "roles": []
    },
    "response": {
      "meta": {
        "requestId": "req_Example24"
      },
      "data": []
    }
  },
  "keys.addRoles": {
    "request": {
      "keyId": "key_Example1",
      "roles": [
        "editor"
      ]
    },
    "response": {
      "meta": {
        "requestId": "req_Example25"
      },
      "data": [
        {
          "id": "role_Example1",
          "name": "editor",
          "description": "Reads and writes documents.",
          "permissions": [
            {
              "id": "perm_Example1",
              "name": "Read documents",
              "slug": "documents.read",
              "description": "May open any document."
            },
            {
              "id": "perm_Example2",
              "name": "documents.write",
              "slug": "documents.write"
            }
          ]
        }
      ]
    }
  },
  "keys.removeRoles": {
    "request": {
      "keyId": "key_Example1",
      "roles": [
        "editor"
      ]
    },
    "response": {
      "meta": {
        "requestId": "req_Example26"
      },
      "data": []
    }
  },
  "keys.rerollKey": {
    "request": {
      "keyId": "key_Example1",
      "expiration": 3600000
    },
    "response": {
      "meta": {
        "requestId": "req_Example27"
      },
      "data": {
        "keyId": "key_Example2",
        "key": "pay_Example2Example2Example2Exam"
      }
    }
  },
  "keys.migrateKeys": {
    "request": {
      "migrationId": "from-our-own",
      "apiId": "api_Example1",
      "keys": [
        {
          "hash": "qxPccIYK9wgUlLxj7vSXqAXSeoBFsp5866QItpoyfq0=",
          "name": "Grace",
          "externalId": "grace",
          "credits": {
            "remaining": 50
          }
        }
      ]
    },
    "response": {
      "meta": {
        "requestId": "req_Example28"
      },
      "data": {
        "migrated": [
          {
            "hash": "qxPccIYK9wgUlLxj7vSXqAXSeoBFsp5866QItpoyfq0=",
            "keyId": "key_Example3"
          }
        ],
        "failed": []
      }
    }
  },
  "ratelimits.limit": {
    "request": {
      "namespace": "email.send",
      "identifier": "ada",
      "limit": 10,
      "duration": 60000
    },
    "response": {
      "meta": {
        "requestId": "req_Example29"
      },
      "data": {
        "success": true,
        "limit": 10,
        "remaining": 9,
        "reset": 1768478489001
      }
    }
  },
  "ratelimits.multiLimit": {
    "request": [
      {
        "namespace": "email.send",
        "identifier": "ada",
        "limit": 10,
        "duration": 60000,
        "cost": 2
      },
      {
        "namespace": "sms.send",
        "identifier": "ada",
        "limit": 3,
        "duration": 60000
      }
    ],
    "response": {
      "meta": {
        "requestId": "req_Example30"
      },
      "data": {
        "passed": true,
        "limits": [
          {
            "namespace": "email.send",
            "identifier": "ada",
            "limit": 10,
            "remaining": 7,
            "reset": 1768478489001,
            "passed": true
          },
          {
            "namespace": "sms.send",
            "identifier": "ada",
            "limit": 3,
            "remaining": 2,
            "reset": 1768478490001,
            "passed": true
          }
        ]
      }
    }
  },
  "ratelimits.setOverride": {
    "request": {
      "namespace": "email.send",
      "identifier": "partner_*",
      "limit": 500,
      "duration": 60000
    },
    "response": {
      "meta": {
        "requestId": "req_Example31"
      },
      "data": {
        "overrideId": "rlor_Example1"
      }
    }
  },
  "ratelimits.getOverride": {
    "request": {
      "namespace": "email.send",
      "identifier": "partner_*"
    },
    "response": {
      "meta": {
        "requestId": "req_Example32"
      },
      "data": {
        "overrideId": "rlor_Example1",
        "namespace": "email.send",
        "namespaceId": "rlns_Example1",
        "identifier": "partner_*",
        "limit": 500,
        "duration": 60000,
        "createdAt": 1768478431000
      }
    }
  },
  "ratelimits.listOverrides": {
    "request": {
      "namespace": "email.send",
      "limit": 10
    },
    "response": {
      "meta": {
        "requestId": "req_Example33"
      },
      "data": {
        "overrides": [
          {
            "overrideId": "rlor_Example1",
            "namespace": "email.send",
            "namespaceId": "rlns_Example1",
            "identifier": "partner_*",
            "limit": 500,
            "duration": 60000,
            "createdAt": 1768478431000
          }
        ]
      },
      "pagination": {
        "hasMore": false
      }
    }
  },
  "ratelimits.deleteOverride": {
    "request": {
      "namespace": "email.send",
      "identifier": "partner_*"
    },
    "response": {
      "meta": {
        "requestId": "req_Example34"
      },
      "data": {}
    }
  },
  "analytics.getVerifications": {
    "request": {
      "apiId": "api_Example1",
      "groupBy": [
        "outcome",
        "externalId"
      ]
    },
    "response": {
      "meta": {
        "requestId": "req_Example35"
      },
      "data": [
        {
          "time": 1768478400000,
          "externalId": "ada",
          "outcome": "VALID",
          "count": 1,
          "spentCredits": 5
        }
      ]
    }
  },
  "analytics.getRatelimits": {
    "request": {
      "namespace": "email.send"
    },
    "response": {
      "meta": {
        "requestId": "req_Example36"
      },
      "data": [
        {
          "time": 1768478400000,
          "namespace": "email.send",
          "passed": 2,
          "blocked": 0
        }
      ]
    }
  },
  "rootKeys.createRootKey": {
    "request": {
      "name": "gateway",
      "permissions": [
        "api.*.verify_key"
      ],
      "expires": 1798761600000
    },
    "response": {
      "meta": {
        "requestId": "req_Example37"
      },
      "data": {
        "rootKeyId": "root_Example1",
        "key": "root_Example3Example3Example3Example3Example3Examp"
      }
    }
  },
  "rootKeys.updateRootKey": {
    "request": {
      "rootKeyId": "root_Example1",
      "permissions": [
        "api.*.verify_key",
        "ratelimit.*.limit"
      ]
    },
    "response": {
      "meta": {
        "requestId": "req_Example38"
      },
      "data": {}
    }
  },
  "rootKeys.listRootKeys": {
    "request": {
      "limit": 10
    },
    "response": {
      "meta": {
        "requestId": "req_Example39"
      },
      "data": [
        {
          "rootKeyId": "root_Example2",
          "start": "root_Example0Example0Examp",
          "permissions": [
            "*"
          ],
          "enabled": true,
          "createdAt": 1768478400000,
          "lastUsedAt": 1768478439000
        },
        {
          "rootKeyId": "root_Example1",
          "name": "gateway",
          "start": "root_Example3Example3Examp",
          "permissions": [
            "api.*.verify_key",
            "ratelimit.*.limit"
          ],
          "enabled": true,
          "expires": 1798761600000,
          "createdAt": 1768478437000
        }
      ],
      "pagination": {
        "hasMore": false
      }
    }
  },
  "rootKeys.deleteRootKey": {
    "request": {
      "rootKeyId": "root_Example1"
    },
    "response": {
      "meta": {
        "requestId": "req_Example40"
      },
      "data": {}
    }
  },
  "keys.deleteKey": {
    "request": {
      "keyId": "key_Example1"
    },
    "response": {
      "meta": {
        "requestId": "req_Example41"
      },
      "data": {}
    }
  },
  "permissions.deleteRole": {
    "request": {
      "role": "editor"
    },
    "response": {
      "meta": {
        "requestId": "req_Example42"
      },
      "data": {}
    }
  },
  "permissions.deletePermission": {
    "request": {
      "permission": "documents.write"
    },
    "response": {
      "meta": {
        "requestId": "req_Example43"
      },
      "data": {}
    }
  },
  "identities.deleteIdentity": {
    "request": {
      "identity": "grace"
    },
    "response": {
      "meta": {
        "requestId": "req_Example44"
      },
      "data": {}
    }
  },
  "apis.deleteApi": {
    "request": {
      "apiId": "api_Example1"
    },
    "response": {
      "meta": {
        "requestId": "req_Example45"
      },
      "data": {}
    }
  },
  "audit.listEvents": {
    "request": {
      "limit": 3,
      "order": "desc"
    },
    "response": {
      "meta": {
        "requestId": "req_Example46"
      },
      "data": [
        {
          "id": "1768478445000-0",
          "time": 1768478445000,
          "rootKeyId": "root_Example2",
          "operation": "apis.deleteApi",
          "resource": {
            "type": "api",
            "id": "api_Example1"
          },
          "requestId": "req_Example45"
        },
        {
          "id": "1768478444000-0",
          "time": 1768478444000,
          "rootKeyId": "root_Example2",
          "operation": "identities.deleteIdentity",
          "resource": {
            "type": "identity",
            "id": "id_Example2"
          },
          "requestId": "req_Example44"
        },
        {
          "id": "1768478443000-0",
          "time": 1768478443000,
          "rootKeyId": "root_Example2",
          "operation": "permissions.deletePermission",
          "resource": {
            "type": "permission",
            "id": "perm_Example2"
          },
          "requestId": "req_Example43"
        }
      ],
      "pagination": {
        "hasMore": true,
        "cursor": "YXVkaXQtZGVzYyAxNzY4NDc4NDQzMDAwLTA"
      }
    }
  },
  "gateway.check": {
    "response": {
      "meta": {
        "requestId": "req_Example47"
      },
      "data": {
        "valid": true,
        "code": "VALID",
        "keyId": "key_Example4"
      }
    }
  },
  "liveness": {
    "response": {
      "meta": {
        "requestId": "req_Example48"
      },
      "data": {
        "message": "Tollgate is alive."
      }
    }
  },
  "health.live": {
    "response": {
      "meta": {
        "requestId": "req_Example49"
      },
      "data": {
        "alive": true
      }
    }
  },
  "health.ready": {
    "response": {
      "meta": {
        "requestId": "req_Example50"
      },
      "data": {
        "ready": true,
        "redis": "answers",
        "scripts": "loaded"
      }
    }
  }
};
