(program (lexical_declaration (variable_declarator name: [(object_pattern [(shorthand_property_identifier_pattern) @name (pair_pattern value: (identifier) @name)]) (array_pattern (identifier) @name)] value: (_) @_from (#not-match? @_from "^(await +)?(require|import)\\b")) @variable))
(program (variable_declaration (variable_declarator name: [(object_pattern [(shorthand_property_identifier_pattern) @name (pair_pattern value: (identifier) @name)]) (array_pattern (identifier) @name)] value: (_) @_from (#not-match? @_from "^(await +)?(require|import)\\b")) @variable))
(program (export_statement (lexical_declaration (variable_declarator name: [(object_pattern [(shorthand_property_identifier_pattern) @name (pair_pattern value: (identifier) @name)]) (array_pattern (identifier) @name)] value: (_) @_from (#not-match? @_from "^(await +)?(require|import)\\b")) @variable)))
(program (export_statement (variable_declaration (variable_declarator name: [(object_pattern [(shorthand_property_identifier_pattern) @name (pair_pattern value: (identifier) @name)]) (array_pattern (identifier) @name)] value: (_) @_from (#not-match? @_from "^(await +)?(require|import)\\b")) @variable)))
(class name: (type_identifier) @name) @class
(class name: (type_identifier) @name (class_heritage (extends_clause value: [(identifier) @super (member_expression property: (property_identifier) @super)]))) @class
(class_declaration name: (type_identifier) @name) @class
(abstract_class_declaration name: (type_identifier) @name) @class
(class_declaration name: (type_identifier) @name (class_heritage (extends_clause value: [(identifier) @super (member_expression property: (property_identifier) @super)]))) @class
(class_declaration name: (type_identifier) @name (class_heritage (implements_clause [(type_identifier) @super (generic_type name: (type_identifier) @super)]))) @class
(abstract_class_declaration name: (type_identifier) @name (class_heritage (extends_clause value: (identifier) @super))) @class
(abstract_class_declaration name: (type_identifier) @name (class_heritage (implements_clause [(type_identifier) @super (generic_type name: (type_identifier) @super)]))) @class
(interface_declaration name: (type_identifier) @name) @interface
(interface_declaration name: (type_identifier) @name (extends_type_clause type: [(type_identifier) @super (generic_type name: (type_identifier) @super)])) @interface
(type_alias_declaration name: (type_identifier) @name) @type
(enum_declaration name: (identifier) @name) @enum
(internal_module name: (identifier) @name) @namespace
(module name: [(identifier) (nested_identifier)] @name) @namespace
(function_declaration name: (identifier) @name) @function
(function_signature name: (identifier) @name) @function
(generator_function_declaration name: (identifier) @name) @function
(method_definition name: [(property_identifier) (private_property_identifier)] @name) @method
(method_signature name: (property_identifier) @name) @method
(abstract_method_signature name: (property_identifier) @name) @method
(public_field_definition name: [(property_identifier) (private_property_identifier)] @name) @field
(property_signature name: (property_identifier) @name) @property
(program (lexical_declaration (variable_declarator name: (identifier) @name) @variable))
(program (variable_declaration (variable_declarator name: (identifier) @name) @variable))
(program (export_statement (lexical_declaration (variable_declarator name: (identifier) @name) @variable)))
(variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression)]) @function
(variable_declarator name: (identifier) @name value: (class)) @class
(ambient_declaration (lexical_declaration (variable_declarator name: (identifier) @name) @variable))
(ambient_declaration (variable_declaration (variable_declarator name: (identifier) @name) @variable))
(internal_module body: (statement_block [(lexical_declaration (variable_declarator name: (identifier) @name) @variable) (export_statement (lexical_declaration (variable_declarator name: (identifier) @name) @variable))]))
(program (export_statement (variable_declaration (variable_declarator name: (identifier) @name) @variable)))
(required_parameter (accessibility_modifier) pattern: (identifier) @name) @field
(required_parameter "readonly" pattern: (identifier) @name) @field
(optional_parameter (accessibility_modifier) pattern: (identifier) @name) @field
(enum_body name: (property_identifier) @name @constant)
(enum_assignment name: (property_identifier) @name) @constant
(assignment_expression left: (member_expression property: (property_identifier) @name) right: [(function_expression) (arrow_function) (class)]) @function
(function_expression name: (identifier) @name) @function
(program (lexical_declaration (variable_declarator value: (object (pair key: (property_identifier) @name) @property))))
(program (export_statement (lexical_declaration (variable_declarator value: (object (pair key: (property_identifier) @name) @property)))))
(pair key: (property_identifier) @name value: [(arrow_function) (function_expression)]) @method
