(function_definition declarator: (function_declarator declarator: (identifier) @name)) @function
(function_definition declarator: (pointer_declarator declarator: (function_declarator declarator: (identifier) @name))) @function
(function_definition declarator: (pointer_declarator declarator: (pointer_declarator declarator: (function_declarator declarator: (identifier) @name)))) @function
(translation_unit (declaration declarator: (function_declarator declarator: (identifier) @name)) @function)
(translation_unit (declaration declarator: (pointer_declarator declarator: (function_declarator declarator: (identifier) @name))) @function)
(struct_specifier name: (type_identifier) @name body: (field_declaration_list)) @struct
(union_specifier name: (type_identifier) @name body: (field_declaration_list)) @struct
(enum_specifier name: (type_identifier) @name body: (enumerator_list)) @enum
(enumerator name: (identifier) @name) @constant
(field_declaration declarator: [(field_identifier) @name (pointer_declarator declarator: (field_identifier) @name) (array_declarator declarator: (field_identifier) @name)]) @field
(type_definition declarator: [(type_identifier) @name (pointer_declarator declarator: (type_identifier) @name)]) @type
(preproc_def name: (identifier) @name) @macro
(preproc_function_def name: (identifier) @name) @macro
(translation_unit (declaration declarator: (init_declarator declarator: (identifier) @name)) @variable)
