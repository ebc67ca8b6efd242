(program (lexical_declaration (variable_declarator name: [(object_pattern [(shorthand_property_identifier_pattern) @name (pair_pattern value: (identifier) @name)]) (array_pattern (identifier) @name)] value: (_) @_from (#not-match? @_from "^(await +)?(require|import)\\b")) @variable))
(program (variable_declaration (variable_declarator name: [(object_pattern [(shorthand_property_identifier_pattern) @name (pair_pattern value: (identifier) @name)]) (array_pattern (identifier) @name)] value: (_) @_from (#not-match? @_from "^(await +)?(require|import)\\b")) @variable))
(program (export_statement (lexical_declaration (variable_declarator name: [(object_pattern [(shorthand_property_identifier_pattern) @name (pair_pattern value: (identifier) @name)]) (array_pattern (identifier) @name)] value: (_) @_from (#not-match? @_from "^(await +)?(require|import)\\b")) @variable)))
(program (export_statement (variable_declaration (variable_declarator name: [(object_pattern [(shorthand_property_identifier_pattern) @name (pair_pattern value: (identifier) @name)]) (array_pattern (identifier) @name)] value: (_) @_from (#not-match? @_from "^(await +)?(require|import)\\b")) @variable)))
(program (expression_statement (assignment_expression left: (member_expression property: (property_identifier) @name) (#not-eq? @name "exports")) @property))
(assignment_expression left: (member_expression object: (member_expression property: (property_identifier) @_of) property: (property_identifier) @name) (#eq? @_of "prototype")) @property
(class name: (identifier) @name) @class
(class name: (identifier) @name (class_heritage [(identifier) @super (member_expression property: (property_identifier) @super)])) @class
(class_declaration name: (identifier) @name) @class
(class_declaration name: (identifier) @name (class_heritage [(identifier) @super (member_expression property: (property_identifier) @super)])) @class
(assignment_expression left: (member_expression property: (property_identifier) @name) right: [(function_expression) (arrow_function) (class)] (#not-eq? @name "exports")) @function
(assignment_expression left: (member_expression property: (property_identifier) @name) right: [(function_expression !name) (arrow_function) (class !name)]) @function
(program (export_statement (variable_declaration (variable_declarator name: (identifier) @name) @variable)))
(function_declaration name: (identifier) @name) @function
(generator_function_declaration name: (identifier) @name) @function
(method_definition name: [(property_identifier) (private_property_identifier)] @name) @method
(field_definition property: [(property_identifier) (private_property_identifier)] @name) @field
(program (lexical_declaration (variable_declarator name: (identifier) @name) @variable))
(program (variable_declaration (variable_declarator name: (identifier) @name) @variable))
(program (export_statement (lexical_declaration (variable_declarator name: (identifier) @name) @variable)))
(variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression)]) @function
(variable_declarator name: (identifier) @name value: (class)) @class
(function_expression name: (identifier) @name) @function
(program (lexical_declaration (variable_declarator value: (object (pair key: (property_identifier) @name) @property))))
(program (export_statement (lexical_declaration (variable_declarator value: (object (pair key: (property_identifier) @name) @property)))))
(pair key: (property_identifier) @name value: [(arrow_function) (function_expression)]) @method
(variable_declarator name: (identifier) @name value: (object)) @variable
(assignment_expression left: (member_expression property: (property_identifier) @name) right: (object)) @property
(assignment_expression left: (identifier) @name right: [(function_expression) (arrow_function) (class)]) @function
